"""The parameters of the parent flow, made from the table of settings: Prefect's form shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from flows.cli.options import Option
from flows.cli.settings import FORM, OPTIONS


def _field(option: Option) -> Any:
    return (option.type, Field(default=option.default, description=option.help))


SweepSettings: type[BaseModel] = create_model(
    "SweepSettings",
    __config__=ConfigDict(extra="forbid"),
    **{name: _field(OPTIONS[name]) for name in FORM},
)


def flags_of(settings: BaseModel) -> dict[str, Any]:
    """What was set in the form, as flags."""
    return settings.model_dump(exclude_unset=True)

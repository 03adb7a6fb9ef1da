"""The parameters of the parent flow, made from the table of settings: Prefect's form shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from flows.cli.options import OPTIONS, SELECTION, SWEEP, Option
from flows.fleet.ticket import MORE

_NOT_HERE = {"stamp", "jobs", "disk_budget", "memory", "memory_budget", "keep_local", "sign_key"}
"""Of a machine, or parameters of their own."""


def _field(option: Option) -> Any:
    kind: Any = str
    if option.switch:
        kind = bool
    elif isinstance(option.default, float):
        kind = float
    elif option.many:
        kind = list[str]
    elif isinstance(option.default, int) or option.name == "opset":
        kind = int
    default = list(option.default) if option.many else option.default
    wanted = kind | None if default is None else kind
    return (wanted, Field(default=default, description=option.help))


NAMES = tuple(name for name in ("feed", *SWEEP, *SELECTION, *MORE) if name not in _NOT_HERE)

SweepSettings: type[BaseModel] = create_model(
    "SweepSettings",
    __config__=ConfigDict(extra="forbid"),
    **{name: _field(OPTIONS[name]) for name in dict.fromkeys(NAMES)},
)


def flags_of(settings: BaseModel) -> dict[str, Any]:
    """What was set in the form, as flags."""
    values = settings.model_dump(exclude_unset=True)
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }

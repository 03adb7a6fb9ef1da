"""The form of the parent flow is made from the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from flows.fleet.entrypoints import SweepSettings
from flows.settings.resolution import resolve
from flows.settings.settings import FORM, OPTIONS


def test_the_form_says_what_the_flags_say() -> None:
    fields = SweepSettings.model_json_schema()["properties"]
    assert set(fields) == set(FORM)
    for name, field in fields.items():
        assert field["description"] == OPTIONS[name].help
    assert {"feed", "target", "if_changed", "heartbeat"} <= set(FORM)


def test_what_belongs_to_a_machine_is_not_in_it() -> None:
    assert not {"home", "store", "state", "jobs", "disk_budget", "memory", "sign_key"} & set(FORM)


def test_only_what_was_filled_in_becomes_a_flag(tmp_path: Path) -> None:
    form = SweepSettings.model_validate({"target": ["mlas_cpu"], "if_changed": True, "opset": 17})
    flags = form.model_dump(exclude_unset=True)
    assert flags == {"target": ("mlas_cpu",), "if_changed": True, "opset": 17}
    settings = resolve(flags, {}, tmp_path)
    assert settings.target == ("mlas_cpu",)
    assert settings.origin("engine") == "default"


def test_the_defaults_of_the_form_are_those_of_the_settings() -> None:
    filled = SweepSettings().model_dump()
    for name in FORM:
        default = OPTIONS[name].default
        assert filled[name] == default


@pytest.mark.parametrize(
    "wrong", [{"trget": ["x"]}, {"timeout": "long"}, {"target": "mlas_cpu"}, {"opset": 1.5}]
)
def test_rubbish_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SweepSettings.model_validate(wrong)

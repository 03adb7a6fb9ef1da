"""The doctor looks for every package that an extra installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from flows.cli import doctor
from machine.installation import install

EXTRAS = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text("utf-8"))[
    "project"
]["optional-dependencies"]


def distributions(extra: str) -> set[str]:
    names = {re.split(r"[^\w.-]", one)[0] for one in EXTRAS[extra]}
    return names - {"modelmill", "onnxruntime", "onnxruntime-windowsml", "windowsml"}


def test_no_package_of_an_extra_is_forgotten() -> None:
    assert set(doctor._BUILD) == distributions("build")
    assert set(doctor._SWEEP) == distributions("sweep") | distributions("azure")


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "pillow" else "1.0")
    found = {one.what: one for one in doctor._packages()}
    assert found["build extra"].detail == "missing: pillow"
    assert found["build extra"].mend.startswith(install("build"))

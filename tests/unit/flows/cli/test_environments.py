"""Engines with an environment of their own, as the commands speak of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.engine_environments import installer_of, unset, venv_of, wanted_installer
from matrix.errors import MillError, UsageError


def test_an_environment_that_was_made_is_only_to_be_named(tmp_path: Path) -> None:
    installer = wanted_installer("winml")
    assert unset("winml", installer, tmp_path) == "modelmill engine install winml"
    python = installer.interpreter_of(venv_of("winml"))
    (tmp_path / python).parent.mkdir(parents=True)
    (tmp_path / python).write_text("")
    assert unset("winml", installer, tmp_path) == f"set engine.winml.python to {python}"


def test_an_engine_that_lives_with_us_has_no_installer() -> None:
    assert installer_of("optimum") is None
    with pytest.raises(UsageError, match="needs no environment of its own"):
        wanted_installer("optimum")


def test_an_unknown_engine_is_told_with_the_nearest_name() -> None:
    with pytest.raises(MillError, match="there is no engine 'winlm'") as caught:
        wanted_installer("winlm")
    assert "winml" in caught.value.hint

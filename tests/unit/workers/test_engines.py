from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fakes.engine import SITE
from workers.errors import EngineNotFound
from workers.host.engines import find_engine, installed_engines
from workers.host.process import child_environment


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)


def test_engines_are_found_by_entry_point_and_not_imported() -> None:
    sys.modules.pop("modelmill_fakes", None)
    engines = installed_engines()
    assert {"optimum", "fake", "nothing"} <= engines.keys()
    assert find_engine("fake").target == "modelmill_fakes:FakeEngine"
    assert "modelmill_fakes" not in sys.modules


def test_an_unknown_engine_gets_the_nearest_name() -> None:
    with pytest.raises(EngineNotFound, match="did you mean optimum"):
        find_engine("optinum")
    with pytest.raises(EngineNotFound, match=r"valid: .*fake"):
        find_engine("zzzzzz")


def test_a_missing_interpreter_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="no interpreter"):
        find_engine("fake", tmp_path / "python")


def test_threads_of_an_engine_that_wait_leave_the_processor_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    engine = find_engine("optimum")
    child = child_environment(os.environ, engine.env, foreign=False, threads=2)
    assert (child["OMP_NUM_THREADS"], child["OMP_WAIT_POLICY"]) == ("2", "PASSIVE")


def test_the_child_is_told_where_a_third_party_engine_is() -> None:
    command = find_engine("fake").command()
    assert f"--package=modelmill_fakes={SITE / 'modelmill_fakes.py'}" in command
    assert any(part.startswith("--package=workers=") for part in command)

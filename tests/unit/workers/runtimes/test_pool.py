"""Looking for runtimes: a process that dies over it is no proof that the runtime is not there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from matrix.profiles import load_profiles
from matrix.status import FailureClass
from matrix.targets import load_targets
from tests.plans.models import a_model, plan_of, plan_options
from workers.compile.stage import CompileStage
from workers.engine import BuildPlan, StageSpec
from workers.errors import BuildFailed
from workers.host.client import Host, Reply
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import KINDS, Kind, Missing, Runtime

QNN = next(kind for kind in KINDS if kind.name == "qnn")
NPU = Runtime("qnn", "QNNExecutionProvider", "npu", "2.0")
PLAN = BuildPlan({"digest": "0" * 64}, (StageSpec("export", {}, ["source"], []),))


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[FailureClass]:
    """How the next processes end that look for a runtime."""
    deaths: list[FailureClass] = []

    def call(_host: Host, op: str, *_args: Any, **_words: Any) -> Reply:
        assert op == "discover"
        if deaths:
            raise BuildFailed(deaths.pop(0), "verify", "the process died")
        return Reply([asdict(NPU)], 0, 0.0)

    monkeypatch.setattr(Host, "call", call)
    monkeypatch.setattr(Kind, "installed", True)
    return deaths


def stage(folder: Path) -> CompileStage:
    # On Windows, Windows ML would be asked for the provider too.
    return CompileStage(Runtimes(folder, allowed={"qnn"}), False, folder)


def compiled_cell() -> Any:
    plan = plan_of([a_model("x/one", "")], options=plan_options(compile=("htp73",)))
    return next(cell for cell in plan.cells() if cell.profile)


@pytest.mark.parametrize("how", [FailureClass.CRASH, FailureClass.TIMEOUT, FailureClass.MEMORY])
def test_a_process_that_is_lost_once_is_asked_again(
    tmp_path: Path, deaths: list[FailureClass], how: FailureClass
) -> None:
    deaths[:] = [how]
    assert Runtimes(tmp_path).of_kind(QNN) == [NPU]


def test_a_cell_is_not_unsupported_because_processes_were_lost(
    tmp_path: Path, deaths: list[FailureClass]
) -> None:
    compiler, cell = stage(tmp_path), compiled_cell()
    deaths[:] = [FailureClass.CRASH] * 2
    with pytest.raises(BuildFailed, match="the process died") as caught:
        compiler.extend(PLAN, cell)
    assert (caught.value.failure, caught.value.retryable) == (FailureClass.CRASH, True)
    assert compiler.extend(PLAN, cell).stages[-1].name == "compile", "the next attempt finds it"


def test_what_always_loses_its_process_is_not_asked_for_ever(
    tmp_path: Path, deaths: list[FailureClass]
) -> None:
    runtimes = Runtimes(tmp_path)
    deaths[:] = [FailureClass.CRASH] * 9
    for _ in range(5):
        (found,) = runtimes.of_kind(QNN)
        assert isinstance(found, Missing)
        assert found.lost is FailureClass.CRASH
    assert len(deaths) == 5


def test_a_runtime_that_is_not_there_is_unsupported(
    tmp_path: Path, deaths: list[FailureClass]
) -> None:
    deaths[:] = [FailureClass.UNSUPPORTED]
    with pytest.raises(BuildFailed) as caught:
        stage(tmp_path).extend(PLAN, compiled_cell())
    assert (caught.value.failure, caught.value.retryable) == (FailureClass.UNSUPPORTED, False)


def test_profiles_name_only_options_that_are_known() -> None:
    from matrix.vocabulary import PROVIDER_OPTIONS

    targets = load_targets()
    for profile in load_profiles(targets):
        known = PROVIDER_OPTIONS[targets.get(profile.target).provider]
        assert profile.options.keys() <= set(known)

"""What goes wrong with winml-cli costs one cell and is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.status import FailureClass
from tests.integration.winml_line import (
    builder,
    cell,
    folder_entry,
    model_folder,
    plan_of,
    run,
    winml_python,
)
from workers.engines import find_engine
from workers.errors import BuildFailed
from workers.host.spec import EngineSpec
from workers.host.watch import HostLimits
from workers.winml_engine.diagnosis import check

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

CRASHING = """
import os

from workers.winml_engine import WinmlEngine


class Crashing(WinmlEngine):
    def run(self, job):
        if job.stage == "optimize" and job.params["rules"] == "QNNExecutionProvider_GPU":
            os.abort()
        return super().run(job)
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("winml-models")


def test_a_model_that_winml_cannot_build_costs_its_own_cells(models: Path, tmp_path: Path) -> None:
    entries = {
        name: folder_entry(name, model_folder(name, models)) for name in ("t5-broken", "bert")
    }
    entries["wrong-task"] = entries["bert"].replace("text-classification", "depth-estimation")
    plan = plan_of(entries, tmp_path)
    with builder(tmp_path) as made:
        for name in ("t5-broken", "wrong-task"):
            with pytest.raises(BuildFailed) as caught:
                made.build(cell(plan, "mlas_cpu", name))
            assert caught.value.failure is FailureClass.EXPORT
            assert "\n" not in str(caught.value)
            assert not caught.value.retryable
        assert made.build(cell(plan, "mlas_cpu", "bert")).files
        assert made.host.starts == 1


def test_a_native_crash_costs_one_cell(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashing_winml.py").write_text(CRASHING)
    monkeypatch.syspath_prepend(tmp_path)
    spec = EngineSpec("winml", "crashing_winml:Crashing", winml_python())
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    with builder(tmp_path, spec) as made:
        assert made.build(cell(plan, "dml_gpu")).files
        with pytest.raises(BuildFailed) as caught:
            made.build(cell(plan, "qnn_gpu"))
        assert caught.value.failure is FailureClass.CRASH
        after = made.build(cell(plan, "ov_cpu"))
        assert [stage.stage for stage in after.stages if not stage.reused] == ["optimize"]
        assert made.host.starts == 2


def test_an_interpreter_without_winml_says_how_to_get_it(models: Path, tmp_path: Path) -> None:
    ours = find_engine("winml")
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    with builder(tmp_path, ours) as made, pytest.raises(BuildFailed) as caught:
        made.build(cell(plan, "mlas_cpu"))
    assert caught.value.failure is FailureClass.UNSUPPORTED
    assert "winml-cli is not installed" in caught.value.reason
    assert "modelmill engine install winml" in caught.value.hint


def test_a_broken_winml_says_so(models: Path, tmp_path: Path) -> None:
    """A module that cannot be imported in winml-cli's own environment."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "datasets.py").write_text("raise ImportError('broken on purpose')\n")
    spec = find_engine("winml", winml_python())
    # PYTHONPATH does not reach a foreign interpreter, so the fault comes by a .pth file.
    broken = _venv_with(tmp_path, hidden)
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    with (
        builder(tmp_path, EngineSpec(spec.name, spec.target, broken)) as made,
        pytest.raises(BuildFailed) as caught,
    ):
        made.build(cell(plan, "qnn_npu"))
    assert caught.value.failure is FailureClass.UNSUPPORTED
    assert "broken on purpose" in caught.value.reason
    found = check(broken)
    assert not found.ok
    assert "broken" in found.detail


def _venv_with(tmp_path: Path, first: Path) -> Path:
    """The environment of winml-cli with a folder in front of it."""
    site = run(
        [str(winml_python()), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    ).strip()
    venv = tmp_path / "venv"
    run([str(winml_python()), "-m", "venv", "--without-pip", str(venv)])
    python = venv / winml_python().relative_to(winml_python().parents[1])
    own = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    text = f"{first}\n{site}\n"
    (Path(own.strip()) / "winml.pth").write_text(text)
    return python


def test_a_stage_that_takes_too_long_is_ended(models: Path, tmp_path: Path) -> None:
    plan = plan_of(
        {"bert": folder_entry("bert", model_folder("bert", models)) + "\ntimeout = 0.05"}, tmp_path
    )
    with builder(tmp_path, limits=HostLimits()) as made:
        made.tools()
        with pytest.raises(BuildFailed) as caught:
            made.build(cell(plan, "qnn_npu"))
    assert caught.value.failure is FailureClass.TIMEOUT


def test_the_users_home_is_left_alone_and_art_stays_in_the_log(
    models: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    found = find_engine("winml", winml_python())
    env = {"HOME": str(home), "USERPROFILE": str(home)}
    spec = EngineSpec(found.name, found.target, found.python, env)
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    log = tmp_path / "cell.log"
    with builder(tmp_path, spec) as made:
        built = made.build(cell(plan, "qnn_npu"), log=log)
    assert not (home / ".winml").exists()
    assert "BertForSequenceClassification" in log.read_text(encoding="utf-8")
    told = str(built.manifest) + str(built.build_record)
    assert "\x1b[" not in told
    assert str(tmp_path) not in str(built.manifest)


def test_telemetry_of_winml_is_off() -> None:
    code = "from winml.modelkit.telemetry.consent import resolve_consent; print(resolve_consent())"
    assert run([str(winml_python()), "-c", code]).strip() == "disabled"


def test_what_was_done_is_in_the_manifest(models: Path, tmp_path: Path) -> None:
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    with builder(tmp_path) as made:
        built = made.build(cell(plan, "qnn_npu"))
    stages = {stage["stage"]: stage["facts"] for stage in built.manifest["stages"]}
    assert stages["config"]["tasks"] == {"": "text-classification"}
    assert stages["optimize"]["autoconf"] == {"gelu_fusion": True, "matmul_add_fusion": True}
    assert stages["optimize"]["analysis"]["unsupported"] == []
    assert stages["quantize"]["applied"] == {
        "mode": "static",
        "weights": "uint8",
        "activations": "uint16",
        "method": "minmax",
        "per_channel": False,
    }
    assert stages["quantize"]["calibration"]["data"] == "random"
    assert built.manifest["engine"]["tools"]["winml-cli"] == "0.4.0"

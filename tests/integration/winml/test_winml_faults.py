"""What goes wrong with winml-cli costs one cell and is told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.model import Plan
from matrix.status import FailureClass
from tests.engines.hosted import SharedHost
from tests.engines.winml import (
    builder,
    cell,
    folder_entry,
    model_folder,
    plan_of,
    run,
    spec_of,
    winml_python,
)
from workers.build.builder import Builder
from workers.errors import BuildFailed, EngineNotFound
from workers.host.engines import find_engine
from workers.host.watch import Watching
from workers.winml_engine.install import ENVIRONMENT

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

ODD = """
import os
import sys
from dataclasses import replace

from workers.winml_engine import WinmlEngine


class Odd(WinmlEngine):
    def run(self, job):
        if job.stage == "optimize" and job.params["rules"] == "QNNExecutionProvider_GPU":
            os.abort()
        report = super().run(job)
        used = sys.modules.get("winml.modelkit.telemetry.telemetry")
        told = {
            "winml": bool(used and used._INSTANCE),
            "onnxruntime": os.environ["ORT_DISABLE_TELEMETRY"],
            "hub": os.environ["HF_HUB_DISABLE_TELEMETRY"],
        }
        return replace(report, info={**report.info, "telemetry": told})
"""
"""Dies in native code for one target, and tells what it sends home."""

SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def bert(models: Path, tmp_path: Path) -> Plan:
    return plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)


def failure(made: Builder, plan: Plan, label: str, name: str = "") -> BuildFailed:
    with pytest.raises(BuildFailed) as caught:
        made.build(cell(plan, label, name))
    assert "\n" not in str(caught.value)
    assert not caught.value.retryable
    return caught.value


def test_a_model_that_winml_cannot_build_costs_its_own_cells(
    models: Path, host: SharedHost, engine: Builder, tmp_path: Path
) -> None:
    entries = {
        name: folder_entry(name, model_folder(name, models)) for name in ("t5-broken", "bert")
    }
    entries["wrong-task"] = entries["bert"].replace("text-classification", "depth-estimation")
    plan = plan_of(entries, tmp_path)
    assert engine.build(cell(plan, "dml_gpu", "bert")).files
    starts = host.starts
    for name in ("t5-broken", "wrong-task"):
        assert failure(engine, plan, "mlas_cpu", name).failure is FailureClass.EXPORT
    assert engine.build(cell(plan, "mlas_cpu", "bert")).files
    assert host.starts == starts


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHost]:
    """A host with that engine."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd_winml.py").write_text(ODD)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        found = SharedHost(spec_of(winml_python(), "odd_winml:Odd"), log_dir=folder)
        yield found
        found.end()


def test_telemetry_is_off(models: Path, odd: SharedHost, tmp_path: Path) -> None:
    with builder(tmp_path, host=odd) as made:
        built = made.build(cell(bert(models, tmp_path), "qnn_npu"))
    told = [stage["info"]["telemetry"] for stage in built.build_record["stages"]]
    assert told == [{"winml": False, "onnxruntime": "1", "hub": "1"}] * 5
    code = "from winml.modelkit.telemetry.consent import resolve_consent; print(resolve_consent())"
    assert run([str(winml_python()), "-c", code]).strip() == "disabled"


def test_a_native_crash_costs_one_cell(models: Path, odd: SharedHost, tmp_path: Path) -> None:
    plan = bert(models, tmp_path)
    with builder(tmp_path, host=odd) as made:
        assert made.build(cell(plan, "dml_gpu")).files
        starts = odd.starts
        assert failure(made, plan, "qnn_gpu").failure is FailureClass.CRASH
        after = made.build(cell(plan, "ov_cpu"))
        assert [stage.stage for stage in after.stages if not stage.reused] == ["optimize"]
        assert odd.starts == starts + 1


def test_an_interpreter_without_winml_says_how_to_get_it(models: Path, tmp_path: Path) -> None:
    with builder(tmp_path, find_engine("winml")) as made:
        told = failure(made, bert(models, tmp_path), "mlas_cpu")
    assert told.failure is FailureClass.UNSUPPORTED
    assert "winml-cli is not installed" in told.reason
    assert "modelmill engine install winml" in told.hint


def test_an_interpreter_that_is_not_there_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="engine winml: there is no interpreter") as caught:
        find_engine("winml", tmp_path / "python")
    assert "engine.winml.python" in caught.value.hint


def test_a_broken_winml_says_so(models: Path, tmp_path: Path) -> None:
    """A module that cannot be imported in winml-cli's own environment."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/datasets.py").write_text("raise ImportError('broken on purpose')\n")
    broken = _venv_with(tmp_path, tmp_path / "hidden")
    with builder(tmp_path, spec_of(broken)) as made:
        told = failure(made, bert(models, tmp_path), "qnn_npu")
    assert told.failure is FailureClass.UNSUPPORTED
    assert "broken on purpose" in told.reason
    assert "modelmill engine install winml" in told.hint
    found = ENVIRONMENT.check(broken)
    assert not found.ok
    assert "broken" in found.detail
    assert found.hint == "modelmill engine install winml"


def test_another_version_of_winml_says_so(models: Path, tmp_path: Path) -> None:
    noted = tmp_path / "hidden/winml_cli-0.5.0.dist-info/METADATA"
    noted.parent.mkdir(parents=True)
    noted.write_text("Metadata-Version: 2.1\nName: winml-cli\nVersion: 0.5.0\n")
    other = _venv_with(tmp_path, tmp_path / "hidden")
    with builder(tmp_path, spec_of(other)) as made:
        told = failure(made, bert(models, tmp_path), "mlas_cpu")
    assert told.failure is FailureClass.UNSUPPORTED
    assert told.reason.endswith("this engine drives winml-cli 0.4.0, not 0.5.0")
    found = ENVIRONMENT.check(other)
    assert not found.ok
    assert found.detail.endswith("has winml-cli 0.5.0, this engine drives 0.4.0")


def _venv_with(tmp_path: Path, first: Path) -> Path:
    """The environment of winml-cli with a folder in front of it.

    PYTHONPATH does not reach a foreign interpreter, so it comes by a .pth file.
    """
    site = run([str(winml_python()), "-c", SITE]).strip()
    venv = tmp_path / "venv"
    run([str(winml_python()), "-m", "venv", "--without-pip", str(venv)])
    python = venv / winml_python().relative_to(winml_python().parents[1])
    own = run([str(python), "-c", SITE]).strip()
    Path(own, "winml.pth").write_text(f"{first}\n{site}\n")
    return python


def test_an_interpreter_that_works_is_told_with_its_versions() -> None:
    found = ENVIRONMENT.check(winml_python())
    assert found.ok, found
    assert found.detail.startswith("winml 0.4.0, torch 2.")
    assert ", python 3.11." in found.detail


def test_a_stage_that_takes_too_long_is_ended(models: Path, tmp_path: Path) -> None:
    """Of the first stage the start of Python alone takes longer than this."""
    entry = folder_entry("bert", model_folder("bert", models)) + "\ntimeout = 0.001"
    plan = plan_of({"bert": entry}, tmp_path)
    with builder(tmp_path) as made:
        made.tools()
        assert failure(made, plan, "qnn_npu").failure is FailureClass.TIMEOUT


def test_the_users_home_is_left_alone_and_art_stays_in_the_log(
    models: Path, home: Path, engine: Builder, tmp_path: Path
) -> None:
    log = tmp_path / "cell.log"
    built = engine.build(cell(bert(models, tmp_path), "qnn_npu"), Watching(log=log))
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert "BertForSequenceClassification" in log.read_text(encoding="utf-8")
    told = str(built.manifest) + str(built.build_record)
    assert "\x1b[" not in told
    assert "BertForSequenceClassification(" not in told
    assert str(tmp_path) not in str(built.manifest)


def test_what_was_done_is_in_the_manifest(models: Path, engine: Builder, tmp_path: Path) -> None:
    built = engine.build(cell(bert(models, tmp_path), "qnn_npu"))
    stages = {stage["stage"]: stage["facts"] for stage in built.manifest["stages"]}
    assert stages["config"]["tasks"] == {"": "text-classification"}
    assert stages["optimize"]["autoconf"] == {"gelu_fusion": True, "matmul_add_fusion": True}
    assert stages["optimize"]["analysis"]["unsupported"] == []
    assert stages["optimize"]["converged"] is True
    assert stages["quantize"]["applied"] == {
        "mode": "static",
        "weights": "uint8",
        "activations": "uint16",
        "method": "minmax",
        "per_channel": False,
    }
    assert stages["quantize"]["nodes"] > 0
    assert stages["quantize"]["calibration"]["data"] == "random"
    assert built.manifest["engine"]["tools"]["winml-cli"] == "0.4.0"
    infos = {stage["stage"]: stage["info"] for stage in built.build_record["stages"]}
    for stage in ("config", "export", "optimize", "quantize"):
        assert set(infos[stage]["timings"]) == {"imports", "work"}
    assert isinstance(infos["quantize"]["warnings"], list)

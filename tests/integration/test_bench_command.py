"""`modelmill bench` as a user types it: packages, cells and files on real runtimes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import onnx
import pytest

from machine.ledger import Ledger
from machine.reservations import DISTURBS
from state.records import MeasurementKind
from state.state import open_state
from tests.machine.timing import eventually, patient
from tests.sweeps.command import INTERRUPTED, Project, model
from tests.verification import packages
from tests.verification.vendor import Vendor
from workers.measure.benchmark import unpack

pytestmark = pytest.mark.engine

FEW = ("--warmup", "1", "--iterations", "20", "--sessions", "2")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    # A ledger of its own: builds of other tests would make these wait.
    made.env |= {"MODELMILL_MACHINE": str(tmp_path / "machine")}
    return made


@pytest.fixture
def vendor(tmp_path: Path, project: Project) -> Vendor:
    made = Vendor.make(tmp_path / "venv")
    project.env |= {
        "MODELMILL_RUNTIMES": "openvino", "MODELMILL_OPENVINO_PYTHON": str(made.python),
    }  # fmt: skip
    return made


def test_a_package_is_measured_on_its_own_input_values_however_it_is_named(
    project: Project,
) -> None:
    project.catalog(model("tiny/a"))
    project.ok("sweep", "catalog.toml", "--stamp", "one", "--target", "mlas_cpu")
    name, version = next(one for one in project.published() if "-mlas-cpu-" in one[1])
    project.ok("feed", "pull", name, version, "--dest", "pulled")
    cell = "tiny/a:fill-mask@mlas_cpu"
    trees = set()
    named = ((name, version), ("pulled",), (cell,))
    for ran in project.session([("bench", *words, *FEW, "--json") for words in named]):
        assert (ran.code, ran.err) == (0, "")
        (found,) = ran.json()
        trees.add(found["artifact"]["tree"])
        assert found["artifact"]["cell"] == cell
        assert found["artifact"]["target"] == "mlas_cpu"
        assert found["emulated"] is False
        (graph,) = found["graphs"]
        assert graph["fault"] is None
        assert graph["latency"]["count"] == 40
        assert [len(unpack(one["samples"])) for one in graph["sessions"]] == [20, 20]
        assert all(one["open_cold"] > 0 for one in graph["sessions"])
        assert list(graph["nodes"]) == ["CPUExecutionProvider"]
        assert graph["inputs"]
    assert len(trees) == 1, "the same content however it is named"
    full = project.run("bench", name, version, *FEW, MODELMILL_DISK_BUDGET="1 kB")
    assert full.code == 1
    assert "of the disk budget of" in full.err, full.err
    assert full.err.count("\n") == 1
    assert project.processes() == []


def test_two_files_are_compared_in_turns(project: Project) -> None:
    onnx.save(packages.model(), project.folder / "a.onnx")
    onnx.save(packages.model(), project.folder / "b.onnx")
    words = ("a.onnx", "--against", "b.onnx", "--target", "mlas_cpu", "--seed", "3", *FEW)
    ran, shown = project.session([("bench", *words, "--json"), ("bench", *words)])
    document = ran.json()
    (graph,) = document["graphs"]
    assert document["seed"] == 3
    assert [len(order) for order in graph["order"]] == [60, 60]
    assert document["this"]["graphs"][0]["latency"]["count"] == 40
    assert len(graph["judgement"]["by_session"]) == 2
    assert "noise floor" in shown.out
    assert "a.onnx against b.onnx" in shown.out
    with open_state(str(project.folder / ".modelmill" / "state.db")) as state:
        kept, _again = state.measurements(kind=MeasurementKind.COMPARISON)
        assert kept.tree == document["this"]["artifact"]["tree"]
        assert kept.detail["verdict"] == graph["judgement"]["verdict"]
        assert kept.detail["other"]["name"] == "b.onnx"
        raw = state.raw_of(kept.id)
        assert raw is not None
        sessions = [one for side in ("this", "other", "null") for one in raw[side]["sessions"]]
        assert [len(unpack(one["samples"])) for one in sessions] == [20] * 6
        assert state.measurements(kind=MeasurementKind.BENCHMARK) == []


@pytest.mark.parametrize(("what", "failure"), [("crash", "CRASH"), ("hang", "TIMEOUT")])
def test_a_library_that_is_lost_costs_one_measurement(
    project: Project, vendor: Vendor, what: str, failure: str
) -> None:
    onnx.save(packages.model(), project.folder / "a.onnx")
    onnx.save(packages.model(), project.folder / "b.onnx")
    vendor.tell(f"{what} running")
    words = ("a.onnx", "b.onnx", "--target", "ov_cpu", *FEW)
    ran = project.run("bench", *words, "--json", "--timeout", f"{patient(5):.0f}s")
    lost, measured = ran.json()
    assert ran.code == 1
    assert ran.err == ""
    assert lost["graphs"][0]["fault"]["failure"] == failure
    assert lost["graphs"][0]["fault"]["at"] == "crash"
    assert measured["graphs"][0]["latency"]["count"] == 40
    assert measured["runtime"]["version"] == "openvino 9999.1"
    assert project.processes() == []


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM")
@pytest.mark.parametrize("verb", ["bench", "trace"])
def test_a_command_that_a_scheduler_ends_says_how_it_goes_on(
    project: Project, vendor: Vendor, verb: str
) -> None:
    onnx.save(packages.model(), project.folder / "a.onnx")
    vendor.tell("hang running")
    with project.start(verb, "a.onnx", "--target", "ov_cpu", plain=True) as running:
        assert eventually(lambda: not vendor.told.exists(), 60)
        running.signal(signal.SIGTERM)
        ran = running.end()
    assert ran.code == 130
    assert ran.err.endswith(INTERRUPTED)
    assert project.alone()


def test_a_build_of_this_machine_is_named(project: Project, tmp_path: Path) -> None:
    onnx.save(packages.model(), project.folder / "a.onnx")
    with Ledger(tmp_path / "machine").reserve([DISTURBS], "demo/bert-tiny export"):
        ran = project.run("bench", "a.onnx", "--target", "mlas_cpu", *FEW)
    assert ran.code == 1
    assert "(demo/bert-tiny export)" in ran.err
    assert "--wait" in ran.err


def test_what_cannot_be_measured_is_one_line(project: Project) -> None:
    (project.folder / "folder").mkdir()
    (project.folder / "rubbish.onnx").write_bytes(b"no model at all")
    onnx.save(packages.model(), project.folder / "a.onnx")
    wrong = {
        ("rubbish.onnx", "--target", "mlas_cpu"): "cannot be read as an ONNX model",
        ("a.onnx",): "no target is given for a.onnx (for example --target mlas_cpu)",
        ("a.onnx", "--target", "vitisai_npu"): "vitisai_npu cannot be measured here",
        ("a.onnx", "--target", "mlas_cpu", "--shape", "z=1x3"): "no input 'z' (valid: x)",
        ("a.onnx", "--target", "mlas_cpu", "--shape", "x=3x3"): "'x' of a.onnx cannot be 3x3",
        ("a.onnx", "--target", "mlas_cpu", "--inputs", "no.npz"): "no.npz is not a file",
        ("nothing",): "'nothing' is neither a folder nor a file",
        ("folder",): "modelmill.json cannot be read",
    }
    several = project.session([("bench", *words, *FEW) for words in wrong])
    for ran, told in zip(several, wrong.values(), strict=True):
        assert (ran.code, ran.out) == (2, "")
        assert told in ran.err
        assert ran.err.count("\n") == 1


def test_input_values_that_do_not_fit_are_told(project: Project) -> None:
    onnx.save(packages.model(), project.folder / "a.onnx")
    (project.folder / "bad.npz").write_bytes(b"rubbish")
    words = ("bench", "a.onnx", "--target", "mlas_cpu", "--json")
    (ran,) = project.session([(*words, "--inputs", "bad.npz")])
    fault = ran.json()[0]["graphs"][0]["fault"]
    assert ran.code == 1
    assert fault["at"] == "feed"
    assert "bad.npz" in fault["message"]

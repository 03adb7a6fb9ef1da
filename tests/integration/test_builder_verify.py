"""The gate: sound packages pass with evidence, and each rung fails of what it is for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from matrix.digest import is_reference, tree_digest
from matrix.status import FailureClass
from tests.fakes.in_process import InProcessHost
from tests.plans.cells import LABELS, make_cell
from workers.build.builder import Builder
from workers.build.built import Built
from workers.engine import StageJob, StageReport
from workers.errors import BuildFailed
from workers.host.client import Host
from workers.host.watch import HostLimits
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import ORT
from workers.store import Store
from workers.verify.verifier import Verifier, VerifyFailed

pytestmark = pytest.mark.engine

Make = Callable[[Path], None]

WRITE_MODEL = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper

def model(scale=1.0):
    values = scale * np.random.default_rng(3).standard_normal((4, 4))
    weight = numpy_helper.from_array(values.astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made
"""


class ModelEngine:
    """Writes real models, made by a function of the test."""

    def __init__(self, make: Make) -> None:
        self.make = make

    def run(self, job: StageJob) -> StageReport:
        import numpy as np

        if job.stage == "inputs":
            (job.out / "judge").mkdir()
            random = np.random.default_rng(0)
            for number in range(4):
                x = random.standard_normal((2, 4)).astype(np.float32)
                np.savez(job.out / "judge" / f"{number:02}.npz", x=x)
        else:
            self.make(job.out)
        return StageReport({"components": []})


def save(out: Path, scale: float = 1.0, *, external: bool = False) -> None:
    import onnx

    space: dict[str, Callable[..., onnx.ModelProto]] = {}
    exec(WRITE_MODEL, space)
    onnx.save(
        space["model"](scale),
        out / "model.onnx",
        save_as_external_data=external,
        location="model.onnx.data",
        size_threshold=0,
    )


@pytest.fixture
def verifier(tmp_path: Path) -> Iterator[Verifier]:
    limits = HostLimits(memory=2_000_000_000)
    made = Verifier(Runtimes(tmp_path / "logs", limits, allowed=()))
    yield made
    made.close()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[[Make], Built]]:
    store = Store(tmp_path / "store")
    builders: list[Builder] = []

    def build_one(make: Make, label: str = "mlas_cpu") -> Built:
        host = InProcessHost(tmp_path / "logs")
        engine = ModelEngine(make)
        host.engine.run = engine.run  # type: ignore[method-assign]  # plans stay the fake's
        builders.append(Builder(store, host, tmp_path / "work"))
        return builders[-1].build(
            make_cell(label=label, salt=str(len(builders)), optimization=label)
        )

    yield build_one
    for builder in builders:
        builder.close()
    store.close()


def rewrite(built: Built, change: Callable[[Path], None]) -> None:
    """Change a package on the disk without changing the store."""
    for file in built.files:
        data = file.source.read_bytes()
        file.source.unlink()
        file.source.write_bytes(data)
    change(built.folder)


@pytest.mark.parametrize("external", [False, True])
def test_a_sound_model_passes_and_the_record_tells_how(
    build: Callable[[Make], Built], verifier: Verifier, external: bool
) -> None:
    built = build(lambda out: save(out, external=external))
    proven = verifier.verify(built)
    names = ["integrity", "policy", "loads", "shapes", "samples", "parity"]
    assert [(rung.name, rung.passed) for rung in proven.evidence] == [
        (name, True) for name in names
    ]
    row = proven.evidence[5].evidence["CPUExecutionProvider cpu"]["model.onnx y"]
    assert (row["snr"], row["max_abs"]) == (150.0, 0.0)
    kept = {file.entry.path for file in proven.files if is_reference(file.entry.path)}
    assert kept == {f"samples/0{number}.out.npz" for number in range(4)}
    record = json.loads((built.folder / "build.json").read_bytes())
    assert record["verification"][0]["name"] == "integrity"
    assert record["verdict"] == {"level": "parity", "reached": True}
    cpu, own = record["runtimes"]
    assert (cpu["name"], cpu["ran"], cpu["taken"]) == ("CPUExecutionProvider cpu", True, [1, 1])
    assert "MLASExecutionProvider is not registered" in own["not_run"]
    assert proven.tree == built.tree == tree_digest(file.entry for file in proven.files)
    written = next(file for file in proven.files if file.entry.path == "build.json")
    assert written.entry.size == written.source.stat().st_size


def _truncate(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, 10)


def _outside(location: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        import onnx

        model = onnx.load(folder / "model.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            for item in tensor.external_data:
                if item.key == "location":
                    item.value = location.replace("HERE", folder.absolute().as_posix())
        (folder / "model.onnx").write_bytes(model.SerializeToString())

    return damage


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_truncate("model.onnx.data"), "are cut off: model.onnx.data"),
        (lambda folder: (folder / "model.onnx.data").unlink(), "are missing: model.onnx.data"),
        (_outside("../../elsewhere.data"), "are outside the package: ../../elsewhere.data"),
        (_outside("HERE/model.onnx.data"), "are outside the package: /"),
        (_truncate("model.onnx"), "model.onnx: "),
    ],
)
def test_integrity_fails_of_damaged_files(
    build: Callable[[Make], Built],
    verifier: Verifier,
    damage: Callable[[Path], None],
    text: str,
) -> None:
    built = build(lambda out: save(out, external=True))
    rewrite(built, damage)
    with pytest.raises(VerifyFailed, match="integrity failed") as failed:
        verifier.verify(built)
    assert text in failed.value.reason
    assert failed.value.failure is FailureClass.VERIFY
    assert failed.value.built.evidence[0].passed is False
    assert failed.value.built.folder.exists()


def test_outputs_that_are_not_numbers_fail(
    build: Callable[[Make], Built], verifier: Verifier
) -> None:
    with pytest.raises(VerifyFailed, match=r"integrity failed: .*weight w holds NaN"):
        verifier.verify(build(lambda out: save(out, float("nan"))))


def test_rubbish_and_nothing_fail(build: Callable[[Make], Built], verifier: Verifier) -> None:
    def rubbish(out: Path) -> None:
        (out / "model.onnx").write_bytes(b"this is no model")

    def nothing(out: Path) -> None:
        (out / "readme.txt").write_text("no model here")

    with pytest.raises(VerifyFailed):
        verifier.verify(build(rubbish))
    with pytest.raises(VerifyFailed, match=r"no \.onnx file"):
        verifier.verify(build(nothing))


def test_equal_artifacts_of_different_targets_are_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier, calls = Verifier(Runtimes(tmp_path / "logs", allowed=())), []
    call = Host.call

    def counting(host: Host, op: str, *args: object, **more: object) -> object:
        calls.append(op)
        return call(host, op, *args, **more)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Host, "call", counting)
    store = Store(tmp_path / "store")
    builder = Builder(store, InProcessHost(tmp_path / "logs"), tmp_path / "work")
    for label in LABELS:
        verifier.verify(builder.build(make_cell(label=label)))
    ran = ["measure", "keep", "exercise", "measure"]
    assert calls == ["versions", "inspect", "discover", *ran]
    again = Verifier(Runtimes(tmp_path / "logs", allowed=()))
    again.verify(builder.build(make_cell()))
    assert calls[7:] == ["versions", "discover"]  # what a store remembers, any process knows
    verifier.close()
    again.close()


def test_a_failure_is_looked_at_again(build: Callable[[Make], Built], verifier: Verifier) -> None:
    built = build(lambda out: save(out, external=True))
    data = (built.folder / "model.onnx.data").read_bytes()
    rewrite(built, lambda folder: (folder / "model.onnx.data").unlink())
    with pytest.raises(VerifyFailed):
        verifier.verify(built)
    (built.folder / "model.onnx.data").write_bytes(data)
    assert verifier.verify(built).evidence[0].passed


def test_a_checker_that_cannot_start_costs_one_cell(
    build: Callable[[Make], Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(ORT, target="workers.verify.checker:Gone")
    monkeypatch.setattr("workers.runtimes.pool.ORT", gone)
    broken = Verifier(Runtimes(tmp_path / "l", allowed=()))
    with pytest.raises(BuildFailed, match="cannot be loaded") as failed:
        broken.verify(build(save))
    assert failed.value.stage == "verify"
    broken.close()

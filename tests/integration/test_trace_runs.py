"""Traces of real models in real hosts, and hosts that are lost over them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from machine.waits import untold
from matrix.targets import load_targets
from tests.engines.onnx_files import convolution
from workers.host.watch import Watching
from workers.measure.subject import Artifact, Graph, Subject
from workers.measure.trace.operators import Window
from workers.measure.trace.result import FallbackReason, Trace, TraceStatus
from workers.measure.trace.tracer import Plan, Tracer
from workers.measure.trace.viewer import find_viewer
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "trace.schema.json").read_text("utf-8"))
SHAPES = {"image": (1, 3, 32, 32)}
FEW = Window(warmup=2, iterations=5)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    convolution(path)
    return path


@pytest.fixture
def runtimes(tmp_path: Path) -> Iterator[Runtimes]:
    logs = tmp_path / "logs"
    logs.mkdir()
    with closing(Runtimes(logs)) as made:
        yield made


def traced(
    runtimes: Runtimes,
    model: Path,
    target: str,
    *,
    level: str = "basic",
    window: Window = FEW,
    progress: Callable[[str], None] = untold,
) -> Trace:
    runtime = runtimes.for_target(load_targets().get(target))
    if isinstance(runtime, Missing):
        pytest.skip(runtime.name)
    subject = Subject(Artifact("m", "0"), (Graph("", model, (), SHAPES),), runtime)
    folder = model.parent / f"trace-{target}-{level}"
    folder.mkdir()
    tracer = Tracer(runtimes, lambda: find_viewer(None), Watching(progress=progress))
    found = tracer.trace(subject, subject.graphs[0], Plan(level, window), folder)
    jsonschema.validate(found.to_json(), SCHEMA)
    for name in found.artifacts.values():
        assert (folder / name).is_file()
    assert not list(folder.glob("optimized*")), "what was only read on the way is gone"
    return found


def held(trace: Trace) -> set[str]:
    return {node.op_type for one in trace.operators for node in one.onnx_nodes or ()}


def test_onnx_runtime_on_the_cpu(runtimes: Runtimes, model: Path) -> None:
    found = traced(runtimes, model, "mlas_cpu")
    assert (found.status, found.error) == (TraceStatus.OK, None)
    assert held(found) == {"Conv", "Relu", "GlobalAveragePool"}
    fused = next(one for one in found.operators if one.onnx_op_type == "Conv")
    assert [node.op_type for node in fused.onnx_nodes or ()] == ["Conv", "Relu"]
    assert fused.sample_count == 5
    assert found.statistics.wall is not None
    assert found.statistics.wall.count == 5
    assert (found.metadata.num_samples, found.metadata.emulated) == (5, False)
    again = traced(runtimes, model, "mlas_cpu", level="detail")
    assert again.fallback_reason is FallbackReason.LEVEL_UNSUPPORTED
    assert again.operators


def test_a_model_that_cannot_be_opened(runtimes: Runtimes, model: Path) -> None:
    model.write_bytes(b"rubbish")
    found = traced(runtimes, model, "mlas_cpu")
    assert found.status is TraceStatus.NOT_RUN
    assert found.error
    assert "cannot be opened" in found.error
    assert found.metadata.num_samples == 0


def test_a_host_that_is_killed_during_its_runs(runtimes: Runtimes, model: Path) -> None:
    killed: list[int] = []

    def kill(_text: str) -> None:
        if not killed:
            for child in psutil.Process().children():
                if "workers.verify.checker:Checker" in " ".join(child.cmdline()):
                    killed.append(child.pid)
                    child.kill()

    found = traced(runtimes, model, "mlas_cpu", window=Window(10, 90_000_000), progress=kill)
    assert killed
    assert found.status is TraceStatus.NOT_RUN
    assert found.error
    assert found.error.startswith(("MEMORY", "CRASH"))
    (model.parent / "trace-mlas_cpu-basic").rename(model.parent / "before")
    assert traced(runtimes, model, "mlas_cpu").status is TraceStatus.OK


def test_options_of_a_trace_do_not_stay(runtimes: Runtimes, model: Path) -> None:
    traced(runtimes, model, "mlas_cpu")
    folder = model.parent / "trace-mlas_cpu-basic"
    before = sorted(folder.iterdir())
    args: dict[str, Any] = {"file": str(model), "sets": 1, "shapes": {"image": [1, 3, 32, 32]}}
    assert runtimes.measure(runtimes.cpu(), args, Watching())["at"] == ""
    runtimes.close()
    assert sorted(folder.iterdir()) == before
    assert not list(model.parent.rglob("onnxruntime_profile*"))


def test_the_command(model: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "modelmill", "trace", str(model), "--target", "mlas_cpu", "--shape",
        "image=1x3x32x32", "--iterations", "4", "--json", "-o", "out", "--home", "home", "--wait",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "COLUMNS": "60"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)
    assert told["status"] == "ok"
    assert json.loads((tmp_path / "out" / "trace.json").read_text("utf-8")) == told
    assert (tmp_path / "out" / told["artifacts"]["runs"]).is_file()


@pytest.mark.vendor
def test_openvino_on_the_cpu(runtimes: Runtimes, model: Path) -> None:
    found = traced(runtimes, model, "ov_cpu", window=Window(5, 50))
    assert (found.status, found.error) == (TraceStatus.OK, None)
    assert held(found) == {"Conv", "Relu", "GlobalAveragePool"}
    assert all(one.p90_us is None for one in found.operators)


@pytest.mark.vendor
def test_the_emulator_of_qnn(runtimes: Runtimes, model: Path) -> None:
    import onnx

    made = onnx.load(model)
    sizes = made.graph.input[0].type.tensor_type.shape.dim
    for dim, size in zip(sizes, SHAPES["image"], strict=True):
        dim.dim_value = size
    for node in made.graph.node:
        node.name = f"/features/{node.op_type}"
    onnx.save(made, model)
    found = traced(runtimes, model, "qnn_npu", level="detail")
    assert found.fallback_reason is FallbackReason.SDK_MISSING
    assert found.metadata.emulated
    assert (found.metadata.partitions, found.metadata.num_samples) == (1, 5)
    assert held(found) == {"Conv", "Relu", "GlobalAveragePool"}
    assert all(one.sample_count == 5 for one in found.operators)
    assert found.summary.accelerator_cycles

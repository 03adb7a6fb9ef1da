"""What tracing costs, and how far it can be believed.

    python -m tests.bench.trace [MODEL.onnx ...] [--part NAME]

`parsing`: a profile of 1,000 operators in 1,000 runs, as QNN and as ONNX Runtime write it, read in
a process of its own. `totals`: the inference of a trace next to the mean of benchmarks before and
after it, for models (the given ones, with `--shape`, or a made one) on the targets of this machine.

The goals: parsing takes under 3 s and 300 MB, and a total is within 5 % of the benchmark's mean
where the source tells time. For ONNX Runtime that is the mean of runs without its profiler; what it
tells itself stands beside that. OpenVINO tells only operators; their sum stands in its row.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from flows.measure.measured import Choice, Finder, finding
from flows.output.table import render
from flows.settings.resolution import resolve
from tests.tracing.profiles import Execution, ort_event, ort_node, qnn_csv
from workers.measure.benchmark import benchmark
from workers.measure.quiet import quiet
from workers.measure.result import Protocol
from workers.measure.running import Driver
from workers.measure.subject import Subject
from workers.measure.trace.readings import Window
from workers.measure.trace.tracer import Plan, Tracer
from workers.measure.trace.viewer import find_viewer

OPERATORS = RUNS = 1000
TARGETS = ("mlas_cpu", "ov_cpu", "qnn_npu")
PARTS = ("parsing", "totals")
ROUNDS = 3
READ = """
import sys, time
from pathlib import Path
from workers.measure.trace.operators import by_cost, statistics
from workers.measure.trace.ort_profile import read_profile
from workers.measure.trace.qnn_csv import read_csv
from workers.measure.trace.readings import Window
began, cpu = time.perf_counter(), time.process_time()
found = {"QNN": read_csv}.get(sys.argv[1], read_profile)(Path(sys.argv[2]), Window(0, 1000))
operators = by_cost([one.operator() for one in found.series])
statistics(operators, found.samples, found.inference)
assert (len(operators), found.samples) == (1000, 1000)
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(f"{time.perf_counter() - began:.2f} {time.process_time() - cpu:.2f} {int(peak) / 1024:.0f}")
"""
"""What the measured process does; the memory is Linux's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="*")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=1x128")
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for part in options.part or PARTS:
            print(f"{part}:")
            if part == "parsing":
                parsing(Path(name))
            else:
                totals(Path(name), options)


def parsing(folder: Path) -> None:
    """Time and memory of a process that reads a profile."""
    rows = []
    for kind, path in (
        ("QNN", large_csv(folder / "profile.csv")),
        ("ONNX Runtime", large_profile(folder / "profile.json")),
    ):
        command = [sys.executable, "-c", READ, kind, str(path)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        wall, cpu, memory = told.split()
        rows.append((kind, f"{path.stat().st_size / 1e6:.0f} MB", wall, cpu, memory))
        path.unlink()
    print(render(("source", "profile", "s", "s of processor", "MB at most"), rows))


def large_csv(path: Path) -> Path:
    names = [f"/encoder/layer.{n // 10}/attention/MatMul_{n}_token_{n}:OpId_{n}" for n in
             range(OPERATORS)]  # fmt: skip
    cycles = {name: 1000 + at for at, name in enumerate(names)}
    return qnn_csv(path, (Execution(1_600_000, 1300 + run, cycles) for run in range(RUNS)))


def large_profile(path: Path) -> Path:
    """With the arguments that ONNX Runtime writes for every operator."""
    shape = [{"float": [1, 128, 384]}]
    more = {f"mem_argument_{n}": "1048576" for n in range(8)}

    def events() -> Iterator[str]:
        for run in range(RUNS):
            start = run * 10_000
            for at in range(OPERATORS):
                yield ort_node(
                    at, f"/encoder/layer.{at // 10}/MatMul_{at}", "MatMul", start + at, 1 + at % 7,
                    output_type_shape=shape, **more,
                )  # fmt: skip
            yield ort_event("model_run", start, 5000)

    with path.open("w", encoding="utf-8") as stream:
        stream.write("[\n")
        stream.writelines(events())
        stream.write('{"cat" : "Session","dur" :1,"ts" :1,"name" :"end","args" : {}}\n]\n')
    return path


def totals(folder: Path, options: argparse.Namespace) -> None:
    """Traces between benchmarks, because the machine changes."""
    files = list(options.model) or [made(folder / "m.onnx", 256, 24)]
    settings = resolve({"home": str(folder / "home")}, {}, Path.cwd(), None)
    rows: list[Sequence[str]] = []
    with finding(settings) as finder, quiet("a benchmark of tracing", wait=True):
        for file in files:
            for target in options.target or TARGETS:
                choice = Choice(target=target, shapes=dict(map(_shape, options.shape)))
                rows += [_total(finder, file, choice, options.iterations, folder)]
    heads = ("model", "target", "benchmark ms", "trace ms", "apart", "what the source tells")
    print(render(heads, rows))


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _equals, sizes = text.partition("=")
    return name, tuple(map(int, sizes.split("x")))


def _total(
    finder: Finder, file: Path, choice: Choice, iterations: int, folder: Path
) -> Sequence[str]:
    [subject] = finder.find([str(file)], choice)
    runs = max(3, iterations // 20) if subject.runtime.emulated else iterations
    protocol = Protocol(warmup=5, iterations=runs, sessions=1)
    tracer = Tracer(finder.runtimes, lambda: find_viewer(None))
    times, traces, what = [], [], "the inference"
    for number in range(ROUNDS):
        times.append(_mean(finder, subject, protocol))
        profiles = folder / f"{choice.target}-{number}-{len(list(folder.iterdir()))}"
        profiles.mkdir()
        plan = Plan("basic", Window(5, runs))
        found = tracer.trace(subject, subject.graphs[0], plan, profiles)
        if not found.usable:
            raise SystemExit(f"{file.name} on {choice.target}: {found.status} {found.error}")
        summary = found.summary
        if summary.inference_us is None:
            what = "operators only"
        elif summary.unprofiled_us is not None:
            what = f"the inference; {summary.inference_us / 1000:.3f} ms under the profiler"
        total = summary.unprofiled_us or summary.inference_us or summary.operators_us or 0
        traces.append(total / 1000)
        times.append(_mean(finder, subject, protocol))
    mean, traced = float(np.median(times)), float(np.median(traces))
    name = f"{choice.target} (emulated)" if subject.runtime.emulated else str(choice.target)
    return (
        file.name, name, f"{mean:.3f}", f"{traced:.3f}", f"{traced / mean - 1:+.1%}", what,
    )  # fmt: skip


def _mean(finder: Finder, subject: Subject, protocol: Protocol) -> float:
    result = benchmark(Driver(finder.runtimes), subject, protocol)
    latency = result.graphs[0].latency
    if latency is None:
        raise SystemExit(str(result.graphs[0].fault))
    return latency.mean


def made(path: Path, size: int, depth: int) -> Path:
    """So many times a matrix and a tanh, every node with a name."""
    random = np.random.default_rng(depth)
    nodes, weights, last = [], [], "x"
    for number in range(depth):
        matrix = (random.standard_normal((size, size)) / size**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{number}"))
        nodes.append(
            helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"], f"/mul_{number}")
        )
        last = f"y{number}"
        nodes.append(helper.make_node("Tanh", [f"h{number}"], [last], f"/tanh_{number}"))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, size]) for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "layers", ports[:1], ports[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


if __name__ == "__main__":
    main()

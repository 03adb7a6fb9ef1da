"""Whether measuring can be trusted: `python -m tests.bench.measure [MODEL.onnx ...] [--part NAME]`.

`overhead`: what our loop adds to the runtime's own call of about 1 ms, in turns with the bare call,
by the processor's clock. `simulated`: what the verdict says of a model against itself and against
one that is 10 % slower, 200 times each, on noise of every kind in `tests.measuring.noise`.
`recorded`: the same on sessions that were recorded on a busy machine; `--record FILE` records new
ones. `real`: benchmarks of the given models (or of two small ones) on every runtime of this
machine, and each against itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import thread_time_ns
from typing import Any

import numpy as np

from flows.cli.commands.bench import shapes_of
from flows.measure.results import benchmark_lines, comparison_lines
from flows.measure.subjects import Choice, Finder, finding
from flows.output.table import render
from flows.settings.resolution import resolve
from machine.waits import untold
from tests.measuring.models import layers
from tests.measuring.noise import KINDS, drawn, experiment, recorded
from workers.host.watch import Watching
from workers.measure.benchmark import Driver, benchmark, unpack
from workers.measure.comparison import ROUNDS, Comparison, compare
from workers.measure.result import Protocol
from workers.measure.verdict import Verdict, judge
from workers.runtimes.bench import counted
from workers.runtimes.ort import OrtService
from workers.session import CPU

PARTS = ("overhead", "simulated", "recorded", "real")
TIMES = 200
BLOCKS, RUNS = 200, 10
TARGETS = ("mlas_cpu", "ov_cpu", "qnn_npu")


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="*")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--record", type=Path, help="write sessions of one model in turns there")
    options = parser.parse_args()
    if options.record:
        record(options.record)
        return
    for part in options.part or PARTS:
        print(f"\n{part}")
        match part:
            case "overhead":
                overhead()
            case "simulated":
                simulated()
            case "recorded":
                from_recordings()
            case _:
                real(options)


def overhead() -> None:
    """Blocks of bare calls and of our loop in turns, in one thread."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = "1"  # the thread that is watched
        file = layers(Path(folder) / "m.onnx", size=256, depth=72)
        session = OrtService().open(str(file), {"provider": CPU, "device": "cpu"})
        feeds = {"x": np.ones((8, 256), np.float32)}
        ours, run = session.prepared(feeds), session._session.run
        gc.collect()
        gc.disable()
        rows = np.array([_blocks(ours, run, feeds) for _ in range(BLOCKS)]) / RUNS / 1e6
        gc.enable()
        session.close()
    bare, looped = np.median(rows, axis=0)
    named = [
        ["bare calls, per run", f"{bare:.4f} ms"],
        ["our loop, per run", f"{looped:.4f} ms"],
        [
            "our loop over bare calls",
            f"{np.median(rows[:, 1] / rows[:, 0]) - 1:+.2%} (must be under 2 %)",
        ],
    ]
    print(render([f"medians of {BLOCKS} blocks of {RUNS} runs", ""], named))


def _blocks(ours: Any, run: Any, feeds: Any) -> tuple[int, int]:
    """Nanoseconds of a bare block and of one in our loop, by the processor's clock: a busy machine
    does not count."""
    began = thread_time_ns()
    for _ in range(RUNS):
        run(None, feeds)
    bare = thread_time_ns() - began
    began = thread_time_ns()
    counted(ours, RUNS, untold)
    return bare, thread_time_ns() - began


def simulated() -> None:
    """Every kind of simulated noise."""
    rows = [
        _row(name, lambda random, slower, noise=noise: experiment(noise, random, slower))
        for name, noise in KINDS.items()
    ]
    _show(rows)


def from_recordings() -> None:
    """Recorded sessions, drawn by chance."""
    rows = []
    for name, sessions in recorded().items():
        rows.append(_row(name, lambda random, slower, found=sessions: drawn(found, random, slower)))
    _show(rows)


def _row(name: str, draw: Any) -> list[str]:
    random = np.random.default_rng(2026)
    alone = Counter(judge(draw(random, 0.0), n).verdict for n in range(TIMES))
    slower = [judge(draw(random, 0.1), n) for n in range(TIMES)]
    clear = [one for one in slower if one.floor < 0.05]
    found = sum(one.verdict is Verdict.SLOWER for one in clear)
    claimed = alone[Verdict.FASTER] + alone[Verdict.SLOWER]
    return [
        name,
        f"{alone[Verdict.SAME]}",
        f"{alone[Verdict.NOISY]}",
        f"{claimed}",
        f"{len(clear)}",
        f"{found / len(clear):.0%}" if clear else "-",
    ]


def _show(rows: list[list[str]]) -> None:
    print(f"of {TIMES} comparisons of a model with itself, and with one that is 10 % slower:")
    heads = ["noise", "no difference", "too noisy", "claimed", "floor < 5 %", "found of those"]
    print(render(heads, rows))


def real(options: argparse.Namespace) -> None:
    """Real models on the runtimes of this machine."""
    with _files(options.model) as files, tempfile.TemporaryDirectory() as home:
        settings = resolve({"home": home}, {}, Path.cwd(), None)
        with finding(settings) as finder:
            for file in files:
                for target in options.target or TARGETS:
                    _one(finder, file, target, options)


def _one(finder: Finder, file: Path, target: str, options: argparse.Namespace) -> None:
    choice = Choice(target=target, shapes=shapes_of(options.shape))
    [subject] = finder.find([str(file)], choice)
    driver = Driver(finder.runtimes)
    iterations = (
        max(5, options.iterations // 20) if subject.runtime.emulated else options.iterations
    )
    protocol = Protocol(warmup=2, iterations=iterations, sessions=3)
    print("\n".join(benchmark_lines(benchmark(driver, subject, protocol))))
    found = compare(driver, subject, subject, protocol, 0)
    lines = list(comparison_lines(found))
    print("against itself:")
    print("\n".join(lines[-4:]), flush=True)


@contextmanager
def _files(given: Sequence[Path]) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory() as folder:
        yield list(given) or [
            layers(Path(folder) / "small.onnx", size=64, depth=4),
            layers(Path(folder) / "large.onnx", size=256, depth=24),
        ]


def record(dest: Path) -> None:
    """Medians of the turns of one model against itself, session by session."""
    kept: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = str(Path(folder) / "home")
        settings = resolve({"home": home}, {}, Path.cwd(), None)
        file = layers(Path(folder) / "m.onnx", size=256, depth=12)
        with finding(settings, threads=1) as finder:
            for target in ("mlas_cpu", "ov_cpu"):
                [subject] = finder.find([str(file)], Choice(target=target))
                found = compare(
                    Driver(finder.runtimes, Watching(progress=print)),
                    subject, subject, Protocol(20, 200, 10), 0,
                )  # fmt: skip
                kept[target] = _turns(found)
    dest.write_text(json.dumps(kept) + "\n", "utf-8")


def _turns(found: Comparison) -> list[Any]:
    """By session, the medians of the three turns of each round in nanoseconds."""
    graphs = (found.this.graphs[0], found.other.graphs[0], found.graphs[0].null)
    return [
        np.transpose(
            [np.median(np.reshape(unpack(one.samples), (ROUNDS, -1)), axis=1) for one in several]
        ).astype(int).tolist()
        for several in zip(*(graph.sessions for graph in graphs), strict=True)
    ]  # fmt: skip


if __name__ == "__main__":
    main()

"""Benchmarks in the host: models opened, kept, run for a while, and closed, each by its key.

Several models can be open at once, so that the owner can let them take turns. What is timed is the
runtime's own call with inputs that are prepared before; nothing else happens between two looks at
the clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.host.child import give_back, memory
from workers.runtimes import values
from workers.session import Session

Answer = dict[str, Any]
Run = Callable[[], object]
TELL = 1_000_000_000
"""Nanoseconds between two reports of progress."""


class Benches:
    """The models that are open now. Operations: `bench_open`, `bench_run`, `bench_close`."""

    def __init__(self, opener: Callable[[str, Mapping[str, Any]], Session]) -> None:
        self._opener = opener
        self._open: dict[str, tuple[Session, Run]] = {}
        """By key, each with the call that is timed."""

    def call(self, op: str, args: Mapping[str, Any], progress: Callable[[str], None]) -> Answer:
        """Answer one request; an exception of the runtime is part of the answer."""
        answer: Answer = {"at": op.removeprefix("bench_")}
        with values.told(answer):
            match op:
                case "bench_open":
                    self._keep(args, answer)
                case "bench_run":
                    self._run(args, answer, progress)
                case _ if args["key"] in self._open:
                    self._open.pop(args["key"])[0].close()
                    give_back()
        return answer

    def _keep(self, args: Mapping[str, Any], answer: Answer) -> None:
        """Open twice: what the first opening in a process costs, and what any other one does."""
        first = not self._open
        before, began = memory("VmRSS"), time.perf_counter()
        session = self._opener(args["file"], args["runtime"])
        cold = time.perf_counter() - began
        answer["open_memory"] = max(0, memory("VmRSS") - before)
        session.close()
        del session
        give_back()
        began = time.perf_counter()
        session = self._opener(args["file"], args["runtime"])
        answer["open_warm"] = time.perf_counter() - began
        answer["open_cold"] = cold if first else None
        try:
            answer["nodes"] = session.nodes()
            answer["at"] = "feed"
            feeds = first_feeds(session, args)
            answer["inputs"] = {name: _shown(value) for name, value in feeds.items()}
            answer["at"] = "run"
            run = session.prepared(feeds)
        except BaseException:
            session.close()
            raise
        self._open[args["key"]] = session, run

    def _run(
        self, args: Mapping[str, Any], answer: Answer, progress: Callable[[str], None]
    ) -> None:
        _session, run = self._open[args["key"]]
        before, cpu = memory("VmRSS"), time.process_time()
        warm_up(run, int(args["warmup"]), float(args["settle"]), progress)
        answer["times"] = times_of(run, int(args["iterations"]), progress)
        answer["cpu"] = time.process_time() - cpu
        answer["memory"] = memory("VmRSS") - before


def warm_up(run: Run, runs: int, settle: float, progress: Callable[[str], None]) -> None:
    """So many runs, and further ones until that many seconds have passed."""
    began = told = time.perf_counter()
    done = 0
    while done < runs or (settle and time.perf_counter() - began < settle):
        run()
        done += 1
        if time.perf_counter() - told > TELL / 1e9:
            told = time.perf_counter()
            progress(f"warming up: {done} of {runs}")


def times_of(run: Run, iterations: int, progress: Callable[[str], None]) -> list[int]:
    """The nanoseconds of each run, undisturbed by the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        return counted(run, iterations, progress)
    finally:
        gc.enable()


def counted(run: Run, iterations: int, progress: Callable[[str], None]) -> list[int]:
    """The loop itself."""
    clock = time.perf_counter_ns
    times = [0] * iterations
    told = clock()
    for number in range(iterations):
        began = clock()
        run()
        ended = clock()
        times[number] = ended - began
        if ended - told > TELL:
            told = ended
            progress(f"run {number + 1} of {iterations}")
    return times


def first_feeds(session: Session, args: Mapping[str, Any]) -> values.Feeds:
    """The first sample of the given files, else a synthetic one."""
    component = str(args.get("component", ""))
    for path in map(Path, args.get("inputs", ())):
        try:
            sample = values.first(path, component, session.inputs)
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise values.Misfit(f"the input values {path.name} cannot be read: {error}") from error
        return values.feeds(sample, session.inputs)
    beside = Path(args["file"]).parent
    made = values.made(session.inputs, 0, args.get("shapes", {}), beside)
    return values.feeds(made, session.inputs)


def _shown(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}"

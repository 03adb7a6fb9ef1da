"""Runtimes without processes, on which every model takes a time that a test chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.client import Reply
from workers.host.watch import UNWATCHED, Watching
from workers.measure.subject import Artifact, Graph, Subject
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

CPU = Runtime("onnxruntime", "CPUExecutionProvider", "cpu", "1.0")
NPU = Runtime("qnn", "QNNExecutionProvider", "npu", "2.0", emulated=True)


def subject(name: str, *components: str, runtime: Runtime = CPU) -> Subject:
    """A model `NAME.onnx`, or one for each component."""
    graphs = tuple(Graph(one, Path(f"{name}.onnx")) for one in components or ("",))
    return Subject(Artifact(name, name * 64), graphs, runtime)


class FakeRuntimes(Runtimes):
    """Runs of a model take so many nanoseconds, by the name of its file."""

    def __init__(self, times: dict[str, Callable[[], Iterator[int]]]) -> None:
        super().__init__(Path("logs"))
        self.times = times
        self.asked: list[tuple[str, str]] = []
        """Operation and key."""
        self.counted: Counter[str] = Counter()
        self.fails: dict[str, Any] = {}
        """By operation: what it answers, or raises, in place of its answer."""
        self.fails_for = "this"
        self._open: dict[str, Iterator[int]] = {}

    def call(
        self,
        runtime: Runtime,
        op: str,
        args: dict[str, Any],
        watching: Watching = UNWATCHED,
        *,
        stage: str,
    ) -> Reply:
        watching.progress(op)
        return Reply(self._answer(runtime, op, args), 0, 0.0)

    def _answer(self, runtime: Runtime, op: str, args: dict[str, Any]) -> dict[str, Any]:
        key = args["key"]
        self.asked.append((op, key))
        if op in self.fails and key == self.fails_for:
            if isinstance(self.fails[op], Exception):
                raise self.fails[op]
            return dict(self.fails[op])
        match op:
            case "bench_open":
                first = not self._open
                self._open[key] = self.times[Path(args["file"]).stem]()
                return {
                    "at": "", "open_cold": 0.5 if first else None, "open_warm": 0.25,
                    "open_memory": 4_000_000, "nodes": {runtime.provider: 3},
                    "inputs": {"x": "float32 [1, 4]"},
                }  # fmt: skip
            case "bench_run":
                self.counted[key] += args["iterations"]
                times = [next(self._open[key]) for _ in range(args["iterations"])]
                return {"at": "", "times": times, "cpu": 0.0, "memory": 1000}
        del self._open[key]
        return {"at": ""}

    def renew(self, runtime: Runtime) -> None:
        self.asked.append(("renew", runtime.kind))
        self._open.clear()


def always(nanoseconds: int) -> Callable[[], Iterator[int]]:
    """Nearly the same time for each run."""
    return lambda: (nanoseconds + number % 7 for number in count())


def crash() -> BuildFailed:
    """The process of a vendor library is gone."""
    text = "the engine host died with signal SIGSEGV"
    return BuildFailed(FailureClass.CRASH, "measure", text, log_tail="the last words")

"""Traces in the host: a model opened under a monitor, warmed up, run, and released.

There is one monitor for each source of operator times. It contributes options to the session before
it is opened, and reads what the source has written after it is released: profilers write their last
lines only then. Options are made anew for every session, so that none of them stays behind.

The order is what counts: options of the monitor, session, runs, session released, and only then
what the source has written. If the monitor slows the runs, half as many are made without it before,
and half after it, in sessions of their own: what changes slowly on the machine affects both alike.
Whatever fails on the way, the session is released and the monitor left; a fault of the monitor
itself never hides the model's own failure.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.host.child import give_back
from workers.runtimes import values
from workers.runtimes.bench import first_feeds, times_of, warm_up
from workers.session import Session
from workers.sources.errors import one_line

LEVELS = ("basic", "detail")
FLUSH = 0.05
"""Seconds that a file may be late after its session is released."""


class Monitor:
    """Watches nothing: what a source does not need is left out."""

    slows = False
    """Whether runs take notably longer under it: then some are made without it, to compare."""

    def session_options(self) -> dict[str, Any]:
        """For the session: attributes of its options, or entries of its configuration (a.b)."""
        return {}

    def provider_options(self) -> dict[str, Any]:
        """For the execution provider, over those of the runtime."""
        return {}

    def enter(self) -> None:
        """Before the session is opened."""

    def warmed(self, session: Session) -> None:
        """Between the warm-up and the first run that counts."""

    def finished(self, session: Session) -> None:
        """After the last run, with the session still open."""

    def exit(self) -> dict[str, Any]:
        """After the session is released: what was seen. Called even if the runs failed."""
        return {}


class OrtMonitor(Monitor):
    """The profiler of ONNX Runtime: every provider whose kernels it calls one by one."""

    slows = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def session_options(self) -> dict[str, Any]:
        return {
            "enable_profiling": True,
            "profile_file_prefix": str(self._folder / "onnxruntime"),
        }

    def enter(self) -> None:
        _refuse_stale(self._folder, "onnxruntime*.json")

    def exit(self) -> dict[str, Any]:
        return {"runs": _name(_awaited(self._folder, "onnxruntime*.json"))}


class QnnMonitor(OrtMonitor):
    """The profiler of QNN's provider; ONNX Runtime's own tells what it left to the CPU."""

    slows = False  # the accelerator counts its own cycles, and compiling takes long

    def __init__(self, folder: Path, level: str) -> None:
        super().__init__(folder)
        if level not in LEVELS:
            raise ValueError(f"there is no level '{level}', only {' and '.join(LEVELS)}")
        self._level = level

    def provider_options(self) -> dict[str, Any]:
        return {
            "profiling_level": "optrace" if self._level == "detail" else "detailed",
            "profiling_file_path": str(self._folder / "profile.csv"),
        }

    def enter(self) -> None:
        super().enter()
        _refuse_stale(self._folder, "profile*")
        _refuse_stale(self._folder, "*_schematic.bin")

    def exit(self) -> dict[str, Any]:
        profile = _awaited(self._folder, "profile.csv")
        found = {
            **super().exit(),
            "profile": _name(profile),
            "log": _name(_awaited(self._folder, "profile_qnn.log")),
        }
        schematics = sorted(one.name for one in self._folder.glob("*_schematic.bin"))
        return {**found, "schematics": schematics}


class OpenVinoMonitor(Monitor):
    """OpenVINO's profiling info, which is lost with the session."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []

    def provider_options(self) -> dict[str, Any]:
        return {"PERF_COUNT": True}

    def warmed(self, session: Session) -> None:
        self._before = {row["name"]: row["mean"] for row in session.times()}

    def finished(self, session: Session) -> None:
        self._rows = [
            {**row, "before": self._before.get(row["name"], 0), "after": row["mean"]}
            for row in session.times()
        ]

    def exit(self) -> dict[str, Any]:
        return {"operators": self._rows}


def monitor_for(source: str, folder: Path, level: str) -> Monitor:
    """The monitor of a source. Raises `ValueError`."""
    match source:
        case "qnn":
            return QnnMonitor(folder, level)
        case "openvino":
            return OpenVinoMonitor()
        case "onnxruntime":
            return OrtMonitor(folder)
    raise ValueError(f"there is no monitor for '{source}'")


def merged(runtime: Mapping[str, Any], monitor: Monitor) -> dict[str, Any]:
    """The runtime with the monitor's options over its own, which stay as they are."""
    return {**runtime, "options": {**runtime.get("options", {}), **monitor.provider_options()}}


def _refuse_stale(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        raise FileExistsError(f"{path.name} is there before the session is opened")


def _awaited(folder: Path, pattern: str) -> Path | None:
    """The newest such file, with one short wait for it."""
    for pause in (0.0, FLUSH):
        time.sleep(pause)
        if found := max(folder.glob(pattern), default=None):
            return found
    return None


def _name(path: Path | None) -> str | None:
    return path.name if path else None


Answer = dict[str, Any]
Opener = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Session]


class Traces:
    """Traces models, one at a time."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._busy = False

    def call(self, args: Mapping[str, Any], progress: Callable[[str], None]) -> Answer:
        """Answer one request; an exception of runtime or monitor is part of the answer."""
        folder = Path(args["folder"])
        monitor = monitor_for(args["source"], folder, args["level"])
        with chdir(folder):  # QNN writes its schematic to where the process is
            answer = self.watched(monitor, args, progress)
        # Since the process began: it is a new one for each trace, and its start counts too.
        return {**answer, "cpu": time.process_time()}

    def watched(
        self, monitor: Monitor, args: Mapping[str, Any], progress: Callable[[str], None]
    ) -> Answer:
        """One window. `at` says where the model failed, `monitor` what went wrong in watching."""
        window = _Window(self._opener, args, progress)
        answer, iterations = window.answer, int(args["iterations"])
        plain = iterations if monitor.slows else 0
        with self._alone():
            try:
                monitor.enter()
            # A monitor that cannot begin is part of the answer, and has nothing to leave.
            except Exception as error:  # noqa: BLE001
                return {**answer, "error": one_line(error)}
            with values.told(answer):
                answer["plain"] += window.run(Monitor(), plain - plain // 2)
                answer["times"] = window.run(monitor, iterations)
            _forget()
            answer |= _left(monitor)
            if "error" not in answer:
                with values.told(answer):
                    answer["plain"] += window.run(Monitor(), plain // 2)
                _forget()
        return answer

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise RuntimeError("a trace is under way already, and traces cannot be nested")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


@dataclass(frozen=True, slots=True)
class _Window:
    """The sessions of one trace."""

    opener: Opener
    args: Mapping[str, Any]
    progress: Callable[[str], None]
    answer: Answer = field(default_factory=lambda: {"at": "monitor", "plain": []})

    def run(self, monitor: Monitor, iterations: int) -> list[int]:
        """The nanoseconds of so many runs of one session."""
        if not iterations:
            return []
        self.answer["at"] = "open"
        runtime, options = merged(self.args["runtime"], monitor), monitor.session_options()
        session = self.opener(self.args["file"], runtime, options)
        try:
            self.answer["nodes"], self.answer["parts"] = session.nodes(), session.parts()
            return self._watch(session, monitor, iterations)
        finally:
            session.close()
            del session
            give_back()

    def _watch(self, session: Session, monitor: Monitor, iterations: int) -> list[int]:
        """The runs. Whatever holds the session is gone when this returns."""
        self.answer["at"] = "feed"
        feeds = first_feeds(session, self.args)
        self.answer["at"] = "run"
        run = session.prepared(feeds)
        warm_up(run, int(self.args["warmup"]), 0.0, self.progress)
        monitor.warmed(session)
        times = times_of(run, iterations, self.progress)
        monitor.finished(session)
        return times


def _forget() -> None:
    """Profilers write their last lines when nothing holds the session any more."""
    gc.collect()
    give_back()


def _left(monitor: Monitor) -> Answer:
    """What the monitor has seen."""
    try:
        return {"seen": monitor.exit()}
    # What went wrong in watching is no failure of the model.
    except Exception as error:  # noqa: BLE001
        return {"seen": {}, "monitor": one_line(error)}

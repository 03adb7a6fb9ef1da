"""Traces in the host: a model opened under a monitor, warmed up, run, and released.

The order is what counts: options of the monitor, session, runs, session released, and only then
what the source has written. If the monitor slows the runs, half as many are made without it before,
and half after it, in sessions of their own: what changes slowly on the machine meets both alike.
Whatever fails on the way, the session is released and the monitor left; what the monitor itself
does wrong never takes the place of the model's own failure.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.runtimes import values
from workers.runtimes.bench import first_feeds, times_of, warm_up
from workers.runtimes.monitors import Monitor, merged, monitor_for
from workers.runtimes.session import Session, give_back, line

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
            return self.watched(monitor, args, progress)

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
                return {**answer, "error": line(error)}
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
        return {"seen": {}, "monitor": line(error)}

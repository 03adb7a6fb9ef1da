"""Three ways to show a running sweep: live on a terminal, plain lines, JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, TextIO

from flows.observe.failures import in_passing
from flows.observe.progress import SweepProgress
from flows.output.console import Detail, coloured, detail_of, moving, paint, shown
from flows.output.quantity import shortened, show_clock, show_duration, show_ms, show_size
from matrix.model import is_export
from state.damage import reading
from state.measurements import MEASURED
from state.records import Event


class View:
    """Gets every event of the sweep in order, and a tick several times a second."""

    def event(self, event: Event, progress: SweepProgress) -> None:
        """Something happened."""

    def tick(self, progress: SweepProgress) -> None:
        """Time has passed."""

    def close(self) -> None:
        """Nothing more will come."""


def one_line(event: Event, progress: SweepProgress, detail: Detail = Detail.USUAL) -> str | None:
    """The line about a cell or export: how it ended; with `-v` every step, with `-q` failures
    alone. None: no line."""
    if event.cell is not None and MEASURED in (event.data or {}):
        return None if detail is Detail.QUIET else _measured_line(event, progress)
    if event.cell is None or event.status is None or event.kind == "planned":
        return None
    if not progress.final(event.status) and detail is not Detail.VERBOSE:
        return None
    if detail is Detail.QUIET and not event.status.failed:
        return None
    place = f"{progress.ended}/{progress.total}" if not is_export(event.cell) else ""
    return _line(progress, place, event_text(event))


def event_text(event: Event) -> str:
    """What happened to a cell: its status, its id, and the figures or the cause."""
    data: dict[str, Any] = dict(event.data or {})
    facts = [str(event.cell)]
    if data.get("seconds", 0) >= 0.001:
        facts.append(show_duration(data["seconds"]))
    if data.get("bytes"):
        facts.append(show_size(data["bytes"]))
    if event.status is not None and event.status.failed:
        facts.append(in_passing(str(data.get("failure", "")), data.get("message") or ""))
    return f"{event.status or '':<14} {'  '.join(facts)}"


def _line(progress: SweepProgress, place: str, text: str) -> str:
    width = 2 * len(str(progress.total)) + 1
    return f"[{place:>{width}}] {text}"


def _measured_line(event: Event, progress: SweepProgress) -> str:
    """The line about a cell that was measured, or could not be."""
    with reading(f"event {event.id}: {MEASURED}"):
        told = dict((event.data or {})[MEASURED])
        state, facts = told["state"], [str(event.cell)]
        if "p50" in told:
            facts.append(f"p50 {show_ms(told['p50'])} on {told['on']}")
        elif "tuned" in told:
            state, champion = "tuned", told.get("champion")
            facts.append(f"champion {champion}" if champion else "no champion")
        elif "message" in told:
            state, why = "not measured", told["message"]
            facts.append(in_passing("", str(why)))
        else:
            facts.append("as before")
        return _line(progress, "", f"{state:<14} {'  '.join(facts)}")


def _style(event: Event) -> str:
    if event.status is not None and event.status.failed:
        return "red"
    return "dim" if is_export(event.cell or "") else ""


_LONG = 60.0
"""Seconds after which, and at which interval, plain lines report a cell that is still built."""
_DOING = 40
"""Characters of what an engine says it is doing."""
_FEWEST = 20
"""Cells that end between two plain lines with the time left, at least."""


class PlainView(View):
    """A line per finished cell, for CI and files."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._detail = detail_of(out)
        self._noticed = ""
        self._ended_then: int | None = None
        """How many cells had ended when the time left was last printed."""
        self._spoke: dict[str, tuple[float, str]] = {}
        """By owner: when its activity was last printed, and which."""

    def event(self, event: Event, progress: SweepProgress) -> None:
        """Print its line, if it has one."""
        line = one_line(event, progress, self._detail)
        if line:
            print(paint(line, _style(event), self._out), file=self._out, flush=True)

    def tick(self, progress: SweepProgress) -> None:
        """Print new remarks once and, now and then, the time left."""
        if progress.remarks != self._noticed:
            self._noticed = progress.remarks
            if progress.remarks:
                print(progress.remarks, file=self._out, flush=True)
        if self._detail is Detail.QUIET:
            return
        self._say_activities(progress)
        last, pause = self._ended_then, max(_FEWEST, progress.total // 10)
        if last is None or progress.ended >= last + pause:
            self._ended_then = progress.ended
            ahead = "; ".join(progress.left_lines())
            if ahead:
                print(f"{progress.ended}/{progress.total}: {ahead}", file=self._out, flush=True)

    def _say_activities(self, progress: SweepProgress) -> None:
        """Print a line now and then about a cell that takes long: a silent log looks dead."""
        for owner, (cell, status, since) in progress.busy.items():
            spent, doing = time.monotonic() - since, progress.doing(owner)
            said_at, said = self._spoke.get(owner, (since, ""))
            if spent < _LONG or time.monotonic() - said_at < _LONG or doing in {said, str(status)}:
                continue
            self._spoke[owner] = (time.monotonic(), doing)
            line = f"at work: {doing}  {cell}  {show_duration(spent)}"
            print(paint(line, "dim", self._out), file=self._out, flush=True)


class JsonView(View):
    """Every event as a JSON line, and what engines say they are doing when it changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._activities: dict[str, tuple[str, str]] = {}

    def event(self, event: Event, progress: SweepProgress) -> None:  # noqa: ARG002 - the view's interface
        """Print it as it is in the state."""
        print(json.dumps({"type": "event", **asdict(event)}), file=self._out, flush=True)

    def tick(self, progress: SweepProgress) -> None:
        """Print activities that have changed; the state keeps no events of them."""
        for owner, (cell, activity) in progress.activities.items():
            if self._activities.get(owner) != (cell, activity):
                told = {"owner": owner, "cell": cell, "activity": activity}
                print(json.dumps({"type": "activity", **told}), file=self._out, flush=True)
        self._activities = dict(progress.activities)


class LiveView(View):
    """Finished cells scroll by; below them a bar and a line per busy slot."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        # `flows.output.console` decides about colours, not rich.
        self._console = Console(
            file=moving(out), highlight=False, force_terminal=True, no_color=not coloured(out)
        )
        self._detail = detail_of(out)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._began = time.monotonic()
        self._bar = "#" if self._console.legacy_windows else "━"

    def event(self, event: Event, progress: SweepProgress) -> None:
        """Scroll a finished cell by."""
        line = one_line(event, progress, self._detail)
        if line:
            self._console.print(shown(line), style=_style(event), markup=False, soft_wrap=True)

    def tick(self, progress: SweepProgress) -> None:
        """Redraw. What moves stands on the left, where a narrow terminal does not cut it."""
        from rich.text import Text

        total, ended = progress.total, progress.ended
        width = max(10, min(40, self._console.width - 50))
        full = width * ended // total if total else width
        ahead = list(progress.left_lines())
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {self._bar * full}{' ' * (width - full)}", style="green")
        text.append(f" {ended}/{total}  {show_clock(time.monotonic() - self._began)}")
        if progress.failed:
            text.append(f"  {progress.failed} failed", style="red")
        if progress.remarks:
            text.append(f"\n  {progress.remarks}", style="yellow")
        for line in ahead:
            text.append(f"\n  {line}", style="dim")
        busy = sorted(progress.busy.items())
        room = max(1, self._console.height - 3 - len(ahead) - bool(progress.remarks))
        for owner, (cell, _status, since) in busy[:room]:
            spent = show_clock(max(0.0, time.monotonic() - since))
            doing = shortened(shown(progress.doing(owner)), _DOING)
            line = f"\n  {_short(owner, progress.busy)}: {doing} {spent}  "
            text.append(line, style="dim")
            text.append(shortened(shown(cell), self._console.width - len(line)))
        if len(busy) > room:
            text.append(f"\n  ... and {len(busy) - room} more at work", style="dim")
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()


def _short(owner: str, all_of_them: Iterable[str]) -> str:
    """The slot alone if all slots are in one process, else with its machine."""
    prefixes = {name.rpartition("/")[0] for name in all_of_them}
    return owner.rpartition("/")[2] if len(prefixes) == 1 else owner


def choose_view(*, as_json: bool, out: TextIO | None = None) -> View:
    """JSON lines when asked for, live on a real terminal, plain lines elsewhere."""
    out = out or sys.stdout
    if as_json:
        return JsonView(out)
    return LiveView(out) if out.isatty() else PlainView(out)

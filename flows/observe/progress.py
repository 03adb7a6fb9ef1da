"""Three ways to show a running sweep: live on a terminal, plain lines, JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Protocol, TextIO

from flows.cli.console import Detail, coloured, detail_of, paint
from flows.cli.quantity import shortened, show_clock, show_duration, show_size
from flows.observe.failures import in_passing
from flows.observe.tally import Tally
from flows.sweep.exports import is_export
from state.records import Event


class View(Protocol):
    """Gets every event of the sweep in order, and a tick several times a second."""

    def event(self, event: Event, tally: Tally) -> None:
        """Something happened."""

    def tick(self, tally: Tally) -> None:
        """Time has passed."""

    def close(self) -> None:
        """Nothing more will come."""


def one_line(event: Event, tally: Tally, detail: Detail = Detail.USUAL) -> str | None:
    """What is said of a cell or export: how it ended, with `-v` every step, with `-q` only
    failures. None: nothing."""
    if event.cell is None or event.status is None or event.kind == "planned":
        return None
    if not tally.final(event.status) and detail is not Detail.VERBOSE:
        return None
    if detail is Detail.QUIET and not event.status.failed:
        return None
    data: dict[str, Any] = dict(event.data or {})
    width = len(str(tally.total))
    place = (
        " " * (2 * width + 1) if is_export(event.cell) else f"{tally.ended:>{width}}/{tally.total}"
    )
    facts = [event.cell]
    if data.get("seconds"):
        facts.append(show_duration(data["seconds"]))
    if data.get("bytes"):
        facts.append(show_size(data["bytes"]))
    if event.status.failed:
        facts.append(in_passing(str(data.get("failure", "")), data.get("message") or ""))
    return f"[{place}] {event.status:<14} {'  '.join(facts)}"


def _style(event: Event) -> str:
    if event.status is not None and event.status.failed:
        return "red"
    return "dim" if is_export(event.cell or "") else ""


_LONG = 60.0
"""Seconds after which plain lines tell of a cell that is still being built, and how often."""
_DOING = 40
"""Characters of what an engine says it is doing."""
_FEWEST = 20
"""Cells between two looks ahead in plain lines."""


class PlainView:
    """A line per finished cell; what CI and files get."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._detail = detail_of(out)
        self._noticed = ""
        self._looked_ahead: int | None = None
        """Cells that had ended when it was last said how long the rest may take."""
        self._spoke: dict[str, tuple[float, str]] = {}
        """By owner: when its activity was last said, and what was said."""

    def event(self, event: Event, tally: Tally) -> None:
        """A line, if there is something to say."""
        line = one_line(event, tally, self._detail)
        if line:
            print(paint(line, _style(event), self._out), file=self._out, flush=True)

    def tick(self, tally: Tally) -> None:
        """Nothing moves; a new notice is said once, and now and then what is still to come."""
        if tally.told != self._noticed:
            self._noticed = tally.told
            if tally.told:
                print(tally.told, file=self._out, flush=True)
        if self._detail is Detail.QUIET:
            return
        self._say_activities(tally)
        last, pause = self._looked_ahead, max(_FEWEST, tally.total // 10)
        if last is None or tally.ended >= last + pause:
            self._looked_ahead = tally.ended
            ahead = "; ".join(tally.outlook())
            if ahead:
                print(f"{tally.ended}/{tally.total}: {ahead}", file=self._out, flush=True)

    def _say_activities(self, tally: Tally) -> None:
        """A line now and then about a cell that takes long, so that a log does not fall silent."""
        for owner, (cell, status, since) in tally.busy.items():
            spent, doing = time.time() - since, tally.doing(owner)
            said_at, said = self._spoke.get(owner, (since, ""))
            if spent < _LONG or time.time() - said_at < _LONG or doing in {said, str(status)}:
                continue
            self._spoke[owner] = (time.time(), doing)
            line = f"at work: {doing}  {cell}  {show_duration(spent)}"
            print(paint(line, "dim", self._out), file=self._out, flush=True)

    def close(self) -> None:
        """Nothing to tidy."""


class JsonView:
    """Every event as a JSON line, and what engines say they are doing when it changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._activities: dict[str, tuple[str, str]] = {}

    def event(self, event: Event, tally: Tally) -> None:  # noqa: ARG002 - the view's interface
        """As it is in the state."""
        print(json.dumps({"type": "event", **asdict(event)}), file=self._out, flush=True)

    def tick(self, tally: Tally) -> None:
        """What is being done now is no event: nothing is kept of it."""
        for owner, (cell, activity) in tally.activities.items():
            if self._activities.get(owner) != (cell, activity):
                told = {"owner": owner, "cell": cell, "activity": activity}
                print(json.dumps({"type": "activity", **told}), file=self._out, flush=True)
        self._activities = dict(tally.activities)

    def close(self) -> None:
        """Nothing to tidy."""


class LiveView:
    """Finished cells scroll by; below them a bar and a line per busy slot."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        # Colours are decided about in one place, ours.
        self._console = Console(
            file=out, highlight=False, force_terminal=True, no_color=not coloured(out)
        )
        self._detail = detail_of(out)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._began = time.monotonic()
        self._bar = "━" if _can_show("━", out) and not self._console.legacy_windows else "#"

    def event(self, event: Event, tally: Tally) -> None:
        """Scroll a finished cell by."""
        line = one_line(event, tally, self._detail)
        if line:
            self._console.print(line, style=_style(event), markup=False, soft_wrap=True)

    def tick(self, tally: Tally) -> None:
        """Redraw the bar and the slots; what moves stands to the left, where nothing cuts it."""
        from rich.text import Text

        total, ended = tally.total, tally.ended
        width = max(10, min(40, self._console.width - 50))
        full = width * ended // total if total else width
        ahead = list(tally.outlook())
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {self._bar * full}{' ' * (width - full)}", style="green")
        text.append(f" {ended}/{total}  {show_clock(time.monotonic() - self._began)}")
        if tally.failed:
            text.append(f"  {tally.failed} failed", style="red")
        if tally.told:
            text.append(f"\n  {tally.told}", style="yellow")
        for line in ahead:
            text.append(f"\n  {line}", style="dim")
        busy = sorted(tally.busy.items())
        room = max(1, self._console.height - 3 - len(ahead) - bool(tally.told))
        for owner, (cell, _status, since) in busy[:room]:
            spent = show_clock(max(0.0, time.time() - since))
            doing = shortened(tally.doing(owner), _DOING)
            line = f"\n  {_short(owner, tally.busy)}: {doing} {spent}  "
            text.append(line, style="dim")
            text.append(shortened(cell, self._console.width - len(line)))
        if len(busy) > room:
            text.append(f"\n  ... and {len(busy) - room} more at work", style="dim")
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()


def _can_show(text: str, out: TextIO) -> bool:
    try:
        text.encode(out.encoding or "utf-8")
    except (LookupError, UnicodeError):
        return False
    return True


def _short(owner: str, all_of_them: Iterable[str]) -> str:
    """The slot alone where everybody works in one process, else with its machine."""
    prefixes = {name.rpartition("/")[0] for name in all_of_them}
    return owner.rpartition("/")[2] if len(prefixes) == 1 else owner


def choose_view(*, as_json: bool, out: TextIO | None = None) -> View:
    """JSON lines when asked for, live on a real terminal, plain lines elsewhere."""
    out = out or sys.stdout
    if as_json:
        return JsonView(out)
    return LiveView(out) if out.isatty() else PlainView(out)

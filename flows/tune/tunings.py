"""Tunings as text: a line for each trial as it is settled, and the table at the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from flows.observe.evidence import EMULATED
from flows.output.quantity import brief, shortened, show_ms
from flows.output.table import render
from flows.tune.document import outcome_of, took, tried
from flows.tune.record import Recorded, Trial, Tuning
from matrix.trials import TuningStatus, Verdict

LONGEST_KEY = 28
LEAST_WHY = 16
"""Columns; in fewer, a reason says nothing."""


def gain_text(trial: Trial) -> str:
    """`+12.3 %`; empty: it was not compared."""
    return f"{trial.gain.gain:+.1f} %" if trial.gain else ""


def interval_text(trial: Trial) -> str:
    """`+10.1 to +14.2`."""
    return f"{trial.gain.low:+.1f} to {trial.gain.high:+.1f}" if trial.gain else ""


def trial_line(trial: Trial, place: str, width: int) -> str:
    """A trial that has just got its verdict."""
    head = f"  {place}  {shortened(trial.key, LONGEST_KEY)}  {trial.verdict}"
    if trial.gain:
        return f"{head}  {gain_text(trial)} ({interval_text(trial)})"
    room = width - len(head) - 2
    return f"{head}: {brief(trial.why, room)}" if room >= LEAST_WHY else head


def report_lines(found: Sequence[Recorded], champions: Path, again: str) -> Iterator[str]:
    """All tunings of a name. `champions`: the file that keeps the winners; `again`: the arguments
    of the command that continues."""
    width = shutil.get_terminal_size((80, 24)).columns
    for one in found:
        yield from ("", *tuning_lines(one, width))
    if any(one.champion for one in found):
        build = "modelmill sweep CATALOG --champions FILE builds them"
        yield f"\n{champions} has the champions; {build}"
    if any(one.tuning.status is TuningStatus.OUT_OF_TIME for one in found):
        yield f"\nthe budget is used up; continue with: modelmill tune --resume {again}"


def tuning_lines(found: Recorded, width: int) -> Iterator[str]:
    """A tuning with all its trials."""
    tuning = found.tuning
    yield f"{tuning.model}@{tuning.target}"
    yield from (f"  {text}" for text in _about(tuning))
    if tuning.emulated:
        yield f"  {EMULATED}"
    shown = tried(found)
    if shown:
        yield from _table(found, shown, width)
    if skipped := sum(one.verdict is Verdict.SKIPPED for one in found.trials):
        yield f"  {skipped} {'hypothesis' if skipped == 1 else 'hypotheses'} skipped"
    yield f"  {_conclusion(found, shown)}"


def _about(tuning: Tuning) -> Iterator[str]:
    if tuning.runtime is not None:
        yield f"{tuning.runtime.name} {tuning.runtime.version}"
    known = tuning.baseline_ms is not None
    baseline = f"baseline {show_ms(tuning.baseline_ms or 0.0)}" if known else ""
    yield "; ".join(filter(None, (baseline, took(tuning)))) or str(tuning.status)


def _table(found: Recorded, shown: list[Trial], width: int) -> Iterator[str]:
    rows = [
        (
            f"{'*' if one.key == found.tuning.champion else ' '} {shortened(one.key, LONGEST_KEY)}",
            str(one.verdict or "not settled"),
            gain_text(one),
            interval_text(one),
        )
        for one in shown
    ]
    lines = render(("  trial", "verdict", "gain", "interval"), rows).splitlines()
    room = width - max(map(len, lines)) - 4
    longest = max(map(len, lines))
    yield f"  {lines[0]}"
    for line, one in zip(lines[1:], shown, strict=True):
        why = brief(one.why, room) if room >= LEAST_WHY and one.why else ""
        yield f"  {line.ljust(longest)}  {why}".rstrip()


def _conclusion(found: Recorded, shown: list[Trial]) -> str:
    champion, tuning = found.champion, found.tuning
    if tuning.status is TuningStatus.FAILED:
        return f"FAILED: {tuning.message}"
    late = f"; {tuning.message}" if tuning.message else ""
    if champion is not None:
        settings = " ".join(champion.settings)
        return f"champion: {champion.key} {gain_text(champion)} ({settings}){late}"
    none = "no champion, because an emulator proves nothing" if tuning.emulated else "no champion"
    return f"{none}: {outcome_of(shown)}{late}"

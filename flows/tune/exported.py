"""Exports tunings for judging elsewhere, and judges them: every trial, session and time of a run.

The file holds the rows of the state. A reader computes all verdicts again from the sessions, so it
can check the verdicts in the file without the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.output.masking import masked_json
from flows.output.quantity import brief
from flows.output.webpage import replace_text
from flows.tune.conclusion import Observation, observations
from flows.tune.decision import REGRESSION, after_confirmation, confirm, decide, level
from flows.tune.document import TuningPart, part_of
from flows.tune.measuring import seed_of
from flows.tune.ordering import device_of
from flows.tune.record import Recorded, Trial, finished_of, trial_of, tuning_of
from matrix.codec import from_json, to_json
from matrix.errors import PlanError, Problem
from matrix.nearest import quote
from matrix.reader import parse_json, read_text
from matrix.trials import SessionKind, Verdict
from state.reading import StateReader
from state.tunings import SessionRow, TrialRow, TuningRow
from workers.measure.comparison import Finished, added
from workers.measure.verdict import Judgement, judge

KIND = "modelmill tuning"
SCHEMA = 1
OF_TIMES = {Verdict.BETTER, Verdict.NO_DIFFERENCE, Verdict.WORSE, Verdict.TOO_NOISY}
"""Verdicts that are never taken from a file."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A tuning that was read from a file, with its sessions by trial and kind."""

    recorded: Recorded
    sessions: Mapping[tuple[str, SessionKind], Sequence[Finished]]


def export(state: StateReader, name: str, path: Path) -> int:
    """Write all tunings of a name; returns how many sessions there are."""
    tunings, count = [], 0
    for row in state.tunings(name):
        sessions, trials = state.sessions(row.id, raw=True), state.trials(row.id)
        count += len(sessions)
        masked = {"tuning": masked_json(to_json(row)), "trials": masked_json(to_json(trials))}
        tunings.append({**masked, "sessions": to_json(sessions)})
    told = {"kind": KIND, "schema": SCHEMA, "name": name, "tunings": tunings}
    replace_text(path, json.dumps(told) + "\n", hint="name another file with --export")
    return count


def is_export(path: Path) -> bool:
    """Whether a file says that it is one of ours."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return f'"kind": "{KIND}"'.encode() in stream.read(256)


def read_export(path: Path) -> list[Exported]:
    """The tunings of a file. Raises `PlanError`."""
    data = parse_json(read_text(path), path.name)
    with grading(path.name):
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']}, not {SCHEMA}")
        return [_read(one) for one in data["tunings"]]


@contextmanager
def grading(file: str) -> Iterator[None]:
    """A file may hold anything: every error that this causes becomes a `PlanError`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        problem = Problem(file, f"is not an exported tuning: {error!r}", "export it again")
        raise PlanError([problem], "the exports") from None


def _read(told: Mapping[str, Any]) -> Exported:
    tuning = tuning_of(from_json(told["tuning"], TuningRow, exact=False))
    trials = tuple(trial_of(from_json(one, TrialRow, exact=False)) for one in told["trials"])
    for text in (tuning.model, tuning.target, *(one.key for one in trials)):
        if not text.isprintable():
            raise ValueError(f"{quote(text)} is not a name")
    rows = [from_json(one, SessionRow, exact=False) for one in told["sessions"]]
    shown = [replace(one, title=brief(one.title), why=brief(one.why)) for one in trials]
    return Exported(Recorded(tuning, tuple(shown)), _sessions(rows))


def _sessions(rows: Sequence[SessionRow]) -> dict[tuple[str, SessionKind], list[Finished]]:
    """By trial and kind those that its verdict rests on: of the last artifacts that were compared,
    and where a session was repeated after a crash, the later one."""
    found = {}
    for key in dict.fromkeys((row.trial, row.kind) for row in rows):
        mine = [row for row in rows if (row.trial, row.kind) == key]
        last = [row for row in mine if row.detail.get("artifacts") == mine[-1].detail["artifacts"]]
        once = {(one.component, one.number): one for one in finished_of(last)}
        found[key] = list(once.values())
    return found


def regraded(one: Exported, min_gain: float | None = None) -> Recorded:
    """The same tuning with verdicts that are computed from its sessions.

    `min_gain`: in place of the tuning's own. What came of a trial without its times, such as a
    crash, stays as it was recorded.
    """
    tuning = one.recorded.tuning
    least = tuning.min_gain if min_gain is None else min_gain
    trials = tuple(_regraded(one, trial, least) for trial in one.recorded.trials)
    better = (trial for trial in trials if trial.verdict is Verdict.BETTER)
    won = {trial.key: trial.gain.gain for trial in better if trial.gain}
    champion = max(won, key=won.__getitem__) if won and not tuning.emulated else ""
    return Recorded(replace(tuning, champion=champion, min_gain=least), trials)


def _regraded(one: Exported, trial: Trial, least: float) -> Trial:
    if trial.verdict not in OF_TIMES:
        return trial
    first = _judged(one, trial, SessionKind.COMPARISON, least)
    decision = decide(first, least) if first else None
    changed = replace(trial, judgement=first, decision=decision, confirmation=None, confirmed=None)
    if decision is None:
        verdict, why = _screened(one, trial, least)
        return replace(changed, verdict=verdict, why=why)
    if decision.verdict is not Verdict.BETTER:
        return replace(changed, verdict=decision.verdict, why=decision.why)
    again = _judged(one, trial, SessionKind.CONFIRMATION, least)
    if again is None:
        why = "it looks better, and has no sessions that confirm it"
        return replace(changed, verdict=Verdict.TOO_NOISY, why=why)
    told = confirm(again, least)
    changed = replace(changed, confirmation=again, confirmed=told)
    verdict, why = after_confirmation(told)
    return replace(changed, verdict=verdict, why=why)


def _screened(one: Exported, trial: Trial, least: float) -> tuple[Verdict, str]:
    """The verdict on a trial whose comparison is incomplete."""
    short = _judged(one, trial, SessionKind.SCREEN, least)
    if short is not None and short.ratio >= REGRESSION:
        return Verdict.WORSE, f"{short.ratio:.2f} times the baseline's time when it was screened"
    return Verdict.TOO_NOISY, "the file does not have all sessions of its comparison"


def _judged(one: Exported, trial: Trial, kind: SessionKind, least: float) -> Judgement | None:
    sessions = one.sessions.get((trial.key, kind), ())
    tuning = one.recorded.tuning
    if not _whole(sessions, 1 if kind is SessionKind.SCREEN else tuning.protocol.sessions):
        return None
    crashes = sum(crash.kind is kind for crash in trial.crashes)
    seed = seed_of(tuning.seed, trial.key, kind, crashes)
    return judge(added(sessions), seed, level(tuning.tried), least / 100)


def _whole(sessions: Sequence[Finished], wanted: int) -> bool:
    """Whether there are so many, each with the same graphs."""
    graphs: dict[int, set[str]] = {}
    for one in sessions:
        graphs.setdefault(one.number, set()).add(one.component)
    return len(graphs) >= max(1, wanted) and len(set(map(frozenset, graphs.values()))) == 1


@dataclass(frozen=True, slots=True)
class Graded:
    """A trial of an export: the recorded verdict, and what its sessions say."""

    file: str
    model: str
    trial: str
    gain: float | None
    recorded: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A tuning that was measured elsewhere, judged again."""

    rows: tuple[Graded, ...]
    part: TuningPart
    observations: tuple[Observation, ...]


def grade_files(paths: Sequence[Path], min_gain: float | None) -> list[Elsewhere]:
    """The tunings of exports. Raises `PlanError`."""
    step = "modelmill tune report NAME --export FILE writes one"
    if others := [path for path in paths if not is_export(path)]:
        told = [Problem(str(path), "is not an exported tuning", step) for path in others]
        raise PlanError(told, "the exports")
    return [_again(path.name, one, min_gain) for path in paths for one in read_export(path)]


def _again(file: str, one: Exported, min_gain: float | None) -> Elsewhere:
    with grading(file):
        # What is learned does not depend on what this command calls a difference.
        own = regraded(one)
        now = own if min_gain is None else regraded(one, min_gain)
        tuning, runtime, machine = own.tuning, own.tuning.runtime, own.tuning.machine
        rows = (
            Graded(
                file=file,
                model=f"{tuning.model}@{tuning.target}",
                trial=was.key,
                gain=again.gain.gain if again.gain else None,
                recorded=str(was.verdict),
                verdict=again.verdict or Verdict.SKIPPED,
                why=again.why,
            )
            for was, again in zip(one.recorded.trials, now.trials, strict=True)
            if was.verdict is not None
        )
        seen = observations(own, device_of(runtime, machine)) if runtime and machine else ()
        return Elsewhere(tuple(rows), part_of(now), tuple(seen))

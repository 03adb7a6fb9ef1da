"""Exports tunings for grading elsewhere: every trial, every session, the time of every run.

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

from flows.cli.quantity import brief
from flows.observe.masking import masked_json
from flows.tune.decision import REGRESSION, Decision, after_confirmation, confirm, decide, level
from flows.tune.measuring import seed_of
from flows.tune.record import Recorded, Trial, Tuning, finished_of, trial_of, tuning_of
from flows.tune.replay import Agreement, Graded, gain, median, npu_opset_rule
from machine.files import replace_file
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
    replace_file(path, (json.dumps(told) + "\n").encode())
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
        raise PlanError([problem], "the recordings") from None


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


def graded(file: str, one: Exported, now: Recorded) -> list[Graded]:
    """Its trials: the recorded verdict, that of the older rule, and that of the data."""
    pairs = zip(one.recorded.trials, now.trials, strict=True)
    return [_graded(file, one, was, again) for was, again in pairs if was.verdict is not None]


def _graded(file: str, one: Exported, was: Trial, now: Trial) -> Graded:
    tuning: Tuning = one.recorded.tuning
    baseline, candidate = _medians(one.sessions.get((was.key, SessionKind.COMPARISON), ()))
    rule = npu_opset_rule(baseline, candidate) if baseline else ""
    told: Decision | None = now.gain
    gained = gain(median(baseline), median(candidate)) if baseline else None
    verdict, claim = now.verdict or Verdict.SKIPPED, str(was.verdict)
    return Graded(
        recording=file,
        model=f"{tuning.model}@{tuning.target}",
        trial=was.key,
        label=was.title,
        sessions=tuple(candidate),
        gain=told.gain if told else gained,
        claim=claim,
        rule=rule,
        verdict=verdict,
        why=now.why,
        agreement=Agreement.SUPPORTED if claim == str(verdict) else Agreement.OURS,
    )


def _medians(sessions: Sequence[Finished]) -> tuple[list[float], list[float]]:
    """Of the baseline and of the trial, a median for each session in milliseconds; of a composite,
    the sum of its graphs."""
    rounds = added(sessions) if sessions else []
    other = [median([(one.other + one.null) / 2 for one in rows]) / 1e6 for rows in rounds]
    return other, [median([one.this for one in rows]) / 1e6 for rows in rounds]

"""Reads measurements made elsewhere: modelmill's exports and recordings of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.observe.tuning.document import Document, TrialRow, TuningPart, part_of
from flows.tune.exported import Exported, graded, grading, is_export, read_export, regraded
from flows.tune.learning import MEASURED, Observation, observations
from flows.tune.planning import device_of
from flows.tune.recordings import Recording, read_recordings
from flows.tune.replay import MIN_GAIN, Graded, replay
from matrix.digest import value_digest
from matrix.findings import Evidence

NAME = "replay"
"""Of the report."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """One tuning that was measured elsewhere."""

    rows: tuple[Graded, ...]
    part: TuningPart
    observations: tuple[Observation, ...]


def read_elsewhere(paths: Sequence[Path], min_gain: float | None) -> list[Elsewhere]:
    """All of it. Raises `PlanError`."""
    ours = [path for path in paths if is_export(path)]
    older = [path for path in paths if path not in ours]
    found = [_exported(path.name, one, min_gain) for path in ours for one in read_export(path)]
    least = MIN_GAIN if min_gain is None else min_gain
    for one in read_recordings(older):
        rows = tuple(replay(one, least))
        found.append(Elsewhere(rows, _part(one, rows), tuple(_observations(one, rows))))
    return found


def told_of(found: Sequence[Elsewhere]) -> Document:
    """Its report."""
    return Document(name=NAME, tunings=tuple(one.part for one in found))


def _exported(file: str, one: Exported, min_gain: float | None) -> Elsewhere:
    with grading(file):
        # What is learned does not depend on what this command calls a difference.
        own = regraded(one)
        now = own if min_gain is None else regraded(one, min_gain)
        runtime, machine = own.tuning.runtime, own.tuning.machine
        seen = observations(own, device_of(runtime, machine)) if runtime and machine else ()
        return Elsewhere(tuple(graded(file, one, now)), part_of(now), tuple(seen))


def _part(one: Recording, rows: Sequence[Graded]) -> TuningPart:
    wrong = sum(bool(row.agreement) for row in rows)
    in_sequence = "measured one after the other: none can be called better"
    return TuningPart(
        model=one.model,
        target=one.device,
        conclusion=f"{len(rows)} trials; the data do not support {wrong} of the claims",
        facts=(("recording", one.file), ("rules", one.kind), ("sessions", in_sequence)),
        trials=tuple(_row(one, row) for row in rows),
    )


def _row(one: Recording, row: Graded) -> TrialRow:
    return TrialRow(
        key=row.trial,
        title=row.label,
        settings=one.trial(row.trial).settings,
        phase="single",
        verdict=str(row.verdict),
        why=row.why,
        gain=row.gain,
        placed=f"claimed: {row.claim}; the rule of its time: {row.rule}",
    )


def _observations(one: Recording, rows: Sequence[Graded]) -> list[Observation]:
    """Trials whose recording gives their settings."""
    found = []
    for row in rows:
        settings = one.trial(row.trial).settings
        if row.verdict not in MEASURED or row.gain is None or not settings:
            continue
        found.append(
            Observation(
                title=row.label,
                settings=settings,
                verdict=row.verdict,
                evidence=Evidence(
                    supports=True,
                    model=one.model,
                    architecture=one.architecture,
                    target=one.target,
                    device=one.device,
                    protocol="sequential",
                    gain=round(row.gain, 2),
                    digest=value_digest([one.model, one.device, row.trial, list(row.sessions)]),
                    source=f"{one.file}: {row.trial}",
                ),
            )
        )
    return found

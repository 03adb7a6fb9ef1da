"""Concludes a tuning: writes its champion to a file and its evidence to the knowledge base."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from flows.output.quantity import brief, counted
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.champions import keep_champion
from flows.tune.learning import learn, observations
from flows.tune.planning import device_of
from flows.tune.record import Kept, Recorded, recorded
from matrix.errors import MillError
from matrix.trials import TuningStatus
from workers.measure.result import this_machine


def champions_file(settings: Settings) -> Path:
    """Where champions are kept."""
    if settings.champions:
        return settings.path(settings.champions)
    return Workspace(settings).home / "champions.toml"


def conclude(settings: Settings, kept: Kept, told: Callable[[str], object]) -> None:
    """Keep what follows from the trials: the champion, and what was seen; `told`: in lines.

    A tuning that has failed may be of other tools, so it has no champion.
    """
    _learn(kept, Workspace(settings).knowledge, told)
    if kept.tuning.status is TuningStatus.FAILED:
        return
    found = Recorded(kept.tuning, tuple(kept.trials.values()))
    at = datetime.now(UTC).date().isoformat()
    file, targets = champions_file(settings), Workspace(settings).targets()
    try:
        keep_champion(file, found, targets, kept.tuning.tools, at)
    except MillError as error:
        # The others of a catalog are tuned all the same, and a resume tries it again.
        kept.change(status=TuningStatus.FAILED, message=brief(f"champion not saved: {error}"))


def _learn(kept: Kept, knowledge: Path, told: Callable[[str], object]) -> None:
    """Add what was seen to the knowledge base; the verdicts stand also if that is not possible."""
    # The state knows when it ended.
    every = recorded(kept.state, kept.tuning.name)
    found = next((one for one in every if one.tuning.id == kept.tuning.id), None)
    if found is None or found.tuning.runtime is None:
        return
    machine = found.tuning.machine or this_machine()
    seen = observations(found, device_of(found.tuning.runtime, machine))
    try:
        lines, drafts = learn(knowledge, seen)
    except MillError as error:
        told(f"  the knowledge base was not updated: {error}")
        return
    if lines:
        draft = f" and {counted(drafts, 'draft')}" if drafts else ""
        told(f"  learned: {counted(lines, 'observation')}{draft} in {knowledge}")

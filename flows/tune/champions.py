"""The file of champions, and what a tuning adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.output.masking import masked_json
from flows.settings.workspace import Workspace
from flows.tune.record import Recorded, Trial, recorded
from machine.disk import reason
from machine.files import replace_file
from machine.locks import locked
from matrix.champions import Champion, Proof, baseline_digest, read_champions
from matrix.codec import to_json
from matrix.digest import value_digest
from matrix.errors import Unusable
from matrix.targets import Targets
from matrix.toml import key_text, value_text
from matrix.trials import Verdict
from workers.measure.result import Machine
from workers.runtimes.runtime import Runtime

HEAD = """\
# The best known build of each model for a target, found and confirmed by modelmill tune.
# modelmill sweep CATALOG --champions FILE builds them; docs/tune.md says what the keys mean.
# Each new champion rewrites this file: comments of your own are lost.
"""
ROUNDED = 3
"""Digits of gains."""
NO_BETTER = {
    Verdict.NO_DIFFERENCE, Verdict.WORSE, Verdict.INACCURATE, Verdict.BUILD_FAILED, Verdict.SAME,
}  # fmt: skip
"""What takes the place from a champion that is tried again."""


def champion_of(recorded: Recorded, tools: Mapping[str, str], at: str) -> Champion | None:
    """The confirmed winner of a tuning; None if the baseline is the best known.

    `tools`: versions of what built it; `at`: when.
    """
    trial, tuning = recorded.champion, recorded.tuning
    if trial is None or trial.gain is None:
        return None
    cell = tuning.cell
    changes, profile = tuning.step(trial.key).hypothesis, trial.cell.rpartition("+")[2]
    decision = trial.gain
    numbers = {name: round(getattr(decision, name), ROUNDED) for name in ("gain", "low", "high")}
    return Champion(
        model=cell.model.id,
        task=cell.model.task,
        target=cell.target.label,
        engine=tuning.engine,
        changes=replace(changes, compiled=changes.compiled and profile),
        proof=Proof(
            tuning=tuning.name,
            trial=trial.key,
            comparison=comparison_digest(trial),
            artifact=trial.tree,
            baseline=baseline_digest(cell.model, cell.target),
            emulated=tuning.emulated,
            at=at,
            tools=dict(tools),
            runtime=runtime_words(tuning.runtime),
            machine=machine_words(tuning.machine),
            **numbers,
        ),
    )


def comparison_digest(trial: Trial) -> str:
    """The identity of the measurement that a trial's verdict rests on."""
    return value_digest(to_json(trial.confirmation or trial.judgement))


def tuning_of(work: Workspace, champion: Champion) -> Any:
    """The tuning that found a champion, if the state has it with that very comparison."""
    if not work.has_state():
        return None
    with work.read_state() as state:
        for one in recorded(state, champion.proof.tuning):
            trial = one.trial(champion.proof.trial)
            if trial and comparison_digest(trial) == champion.proof.comparison:
                return masked_json(to_json(one))
    return None


def runtime_words(one: Runtime | None) -> dict[str, str]:
    """What a proof says about a runtime."""
    if one is None:
        return {}
    return {"provider": one.provider, "device": one.device, "version": one.version}


def machine_words(one: Machine | None) -> dict[str, str]:
    """What a proof says about a machine."""
    if one is None:
        return {}
    return {"name": one.name, "processor": one.processor, "system": one.system}


def keep_champion(
    path: Path, recorded: Recorded, targets: Targets, tools: Mapping[str, str], at: str
) -> None:
    """Put the champion of a tuning into a file, in place of that of its model and target.

    One that this tuning tried without success is taken out; the rest stays. Raises `PlanError` for
    a file that cannot be read, which is then left as it is, and `Unusable`.
    """
    found = champion_of(recorded, tools, at)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f"{path.name}.lock")):
            there = read_champions(path, targets) if path.exists() else {}
            kept = {key: one for key, one in there.items() if found or not _beaten(one, recorded)}
            if found:
                kept[found.key] = found
            if kept != there:
                text = as_toml(one for _, one in sorted(kept.items()))
                replace_file(path, text.encode(), sync=True)
    except OSError as error:
        why = f"{path} cannot be written: {reason(error)}"
        raise Unusable(why, hint="name another file with --champions") from None


def _beaten(one: Champion, recorded: Recorded) -> bool:
    """Whether a tuning has tried a champion again, and it was no better than the baseline.

    Tunings of one name do not take from each other: they are of other precisions of the model.
    """
    cell, trial = recorded.tuning.cell, recorded.trial(one.proof.trial)
    key = (cell.model.id, cell.model.task, cell.target.label)
    tried = trial is not None and trial.verdict in NO_BETTER
    again = one.proof.tuning != recorded.tuning.name
    return one.key == key and tried and again and not recorded.tuning.emulated


def as_toml(champions: Iterable[Champion]) -> str:
    """The text of a file of champions."""
    return "\n".join([HEAD, *(line for one in champions for line in _lines(one))])


def _lines(one: Champion) -> Iterator[str]:
    changes, proof = one.changes, one.proof
    head = {"model": one.model, "task": one.task, "target": one.target, "engine": one.engine}
    yield from _table("[champion]", {**head, **_given(compiled=changes.compiled)})
    yield from _table("champion.changes", _given(opset=changes.opset, precision=changes.precision))
    yield from _table("champion.changes.build", changes.build)
    yield from _table("champion.runtime", changes.runtime)
    told: dict[str, Any] = to_json(proof)
    inner = {name: told.pop(name) for name in ("tools", "runtime", "machine")}
    yield from _table("champion.proof", told)
    for name, values in inner.items():
        yield from _table(f"champion.proof.{name}", values)
    yield ""


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        yield f"[{name}]"
        yield from (f"{key_text(key)} = {value_text(one)}" for key, one in values.items())

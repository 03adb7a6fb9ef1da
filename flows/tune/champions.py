"""The file of champions, what a tuning adds to it, and what has changed since one was measured: its
tools, its runtime, its device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.output.masking import masked_json
from flows.settings.engines import engine_spec, runtimes_of
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.record import Recorded, Trial, recorded
from machine.disk import reason
from machine.files import replace_file, temporary_folder
from machine.locks import locked
from matrix.champions import Champion, Proof, baseline_digest, read_champions
from matrix.codec import to_json
from matrix.digest import value_digest
from matrix.errors import MillError, Unusable
from matrix.model import Plan, Target
from matrix.targets import Targets
from matrix.toml import key_text, value_text
from matrix.trials import Verdict
from workers.build.keys import shown
from workers.errors import BuildFailed
from workers.host.client import EngineHost
from workers.measure.result import Machine, this_machine
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime

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


def stale_champions(settings: Settings, plan: Plan) -> list[str]:
    """One line for each champion of a planned cell that is stale, or of which that is not known.

    Asks the engine and the runtimes that are here, in processes of their own, and writes nothing.
    """
    targets = Workspace(settings).targets()
    planned = {(cell.model.id, cell.model.task, cell.target.label) for cell in plan.cells()}
    found = [
        one
        for key, one in read_champions(settings.path(settings.champions or ""), targets).items()
        if key in planned and one.engine == settings.engine
    ]
    if not found:
        return []
    with temporary_folder("modelmill-plan-") as folder:
        tools = _tools(settings, folder)
        with closing(runtimes_of(settings, log_dir=folder)) as runtimes:
            here = {label: _here(runtimes, targets.get(label)) for _, _, label in planned}
    return list(stale_lines(found, tools, here))


def _tools(settings: Settings, folder: Path) -> dict[str, str]:
    """Of the engine; empty if it cannot be asked here."""
    try:
        with closing(EngineHost(engine_spec(settings), log_dir=folder)) as host:
            return host.tools()
    except (MillError, BuildFailed):
        return {}


def _here(runtimes: Runtimes, target: Target) -> Runtime | Missing:
    try:
        return runtimes.for_target(target)
    except BuildFailed as error:
        return Missing(target.provider, target.device, error.reason, error.hint)


def changed_since(
    one: Champion, tools: Mapping[str, str], runtime: Runtime | Missing, machine: Machine
) -> list[str]:
    """What is no longer as it was when a champion was measured.

    Without a runtime for it here, nothing is known of its provider and device.
    """
    proof = one.proof
    found = [
        f"{name} was {shown(version)}, and is {shown(tools.get(name) or 'missing')}"
        for name, version in proof.tools.items()
        if tools and tools.get(name) != version
    ]
    if isinstance(runtime, Missing):
        return found
    now, here = runtime_words(runtime), machine_words(machine)
    found += [
        f"its runtime was {was}, and is {now.get(name)}"
        for name, was in proof.runtime.items()
        if now.get(name) != was
    ]
    if proof.machine and proof.machine.get("processor") != here["processor"]:
        found.append(f"it was measured on {proof.machine.get('processor')}, this machine has "
                     f"{here['processor']}")  # fmt: skip
    return found


def stale_lines(
    champions: Iterable[Champion],
    tools: Mapping[str, str],
    runtime_of: Mapping[str, Runtime | Missing],
) -> Iterator[str]:
    """One line for each champion that is stale or cannot be checked here.

    `tools`: of the engine, empty if it is not here; `runtime_of`: by target.
    """
    machine = this_machine()
    for one in champions:
        runtime = runtime_of[one.target]
        if changed := changed_since(one, tools, runtime, machine):
            yield f"{one.told} is stale: {'; '.join(changed)}"
        elif isinstance(runtime, Missing):
            yield f"{one.told}: not known here whether its device has changed: {runtime.why}"
        elif not tools:
            yield f"{one.told}: not known here whether its tools have changed"

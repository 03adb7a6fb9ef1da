"""What has changed since a champion was measured: its tools, its runtime, its device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from flows.settings.engines import engine_spec, runtimes_of
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.champions import machine_words, runtime_words
from machine.files import temporary_folder
from matrix.champions import Champion, read_champions
from matrix.errors import MillError
from matrix.model import Plan, Target
from workers.build.keys import shown
from workers.errors import BuildFailed
from workers.host.client import EngineHost
from workers.measure.result import Machine, this_machine
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime


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

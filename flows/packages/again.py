"""Verifying again what a batch has published, on the providers of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from feed.index import IndexCell
from flows.output.activity import waiting_for
from flows.packages.batch import published_cells
from flows.packages.builder import verifying
from flows.packages.history import History, keep_verdict
from flows.packages.reverify import build_record, keep_evidence, opened_package
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from matrix.digest import tree_digest
from matrix.errors import NothingSelected
from matrix.model import EXPORT
from workers.compile.check import VIRTUAL
from workers.compile.devices import runtime_for
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime
from workers.verify.verifier import Climbed


@dataclass(frozen=True, slots=True)
class Again:
    """A published cell, verified again."""

    cell: IndexCell
    climbed: Climbed
    history: History | None
    """None: its own provider could not be used after all."""


def runnable(
    settings: Settings, stamp: str, runtimes: Runtimes
) -> tuple[list[IndexCell], dict[str, str]]:
    """The published cells of a batch whose own provider is on this machine, and for each other
    target why it is not. Raises `NothingSelected`."""
    work, missing = Workspace(settings), dict[str, str]()

    def wanted(one: IndexCell) -> bool:
        found = _own(work, runtimes, one.target)
        if isinstance(found, Missing) and one.target != EXPORT:
            missing[one.target] = found.why
        return isinstance(found, Runtime)

    try:
        cells = published_cells(
            settings, work.open_feed(), stamp, "for a provider of this machine", wanted
        )
    except NothingSelected as error:
        if not missing:
            raise
        reasons = "; ".join(f"{target}: {why}" for target, why in missing.items())
        raise NothingSelected(error.message, hint=reasons) from None
    return cells, missing


def _own(work: Workspace, runtimes: Runtimes, column: str) -> Runtime | Missing:
    """The runtime of a column of the index: a target, or one with `+PROFILE`."""
    label, _plus, profile = column.partition("+")
    if label == EXPORT:
        return Missing("", "", "an export is for no target")
    target = work.targets().get(label.partition(":")[0])
    if not profile:
        return runtimes.for_target(target)
    found = runtime_for(runtimes, work.profiles().get(profile), target, emulated=True)
    if isinstance(found, Runtime) and found.virtual:
        return Missing(found.provider, found.device, VIRTUAL)
    return found


def verified_again(settings: Settings, stamp: str, told: Callable[[str], None]) -> Iterator[Again]:
    """Each cell with what its verdicts come to; `told` hears which targets are left out."""
    with verifying(settings, again=True) as verifier:
        cells, missing = runnable(settings, stamp, verifier.runtimes)
        for target, why in missing.items():
            told(f"{target} is left out: {why}")
        for number, cell in enumerate(cells, 1):
            waiting_for(f"verifying {number} of {len(cells)}: {cell.id}")
            with opened_package(settings, cell.package, cell.version, None, None) as (_own, found):
                climbed, tree = verifier.climb(found), tree_digest(found.files)
                built = build_record(found.folder)
            keep_evidence(settings, tree, climbed)
            history = keep_verdict(settings, tree, climbed.to_json(), built)
            yield Again(cell, climbed, history)

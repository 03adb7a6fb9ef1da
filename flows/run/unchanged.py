"""With `--if-changed`: settles unchanged models before any slot starts.

Stage keys and the store are enough to know what a build would produce. A model whose open cells all
equal their newest versions needs no slot, so a sweep of an unchanged catalog starts no Prefect
server. If any open cell of a model differs, the slots process the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flows.packages.builder import open_builder
from flows.slot.slots import owners_here
from flows.sweep.lifecycle import Sweep
from machine.waits import Cancelled
from matrix.model import PlannedModel, PlannedPackage
from matrix.needs import Words, is_measuring
from matrix.status import Status
from state.records import Facts, Lease, Owner
from workers.build.builder import Builder
from workers.build.keys import last_keys
from workers.errors import BuildFailed
from workers.host.watch import Watching


def settle_unchanged(sweep: Sweep) -> None:
    """Record every model as unchanged whose open cells all equal their newest versions."""
    candidates = list(_candidates(sweep))
    if not candidates:
        return
    state, sweep_id = sweep.state, sweep.info.id
    needs = state.demand(sweep_id)
    builds: Words = frozenset().union(*(words for words in needs if not is_measuring(words)))
    owner = Owner.here(f"{owners_here()}unchanged")
    with open_builder(sweep.plan, sweep.settings) as builder:
        for model, packages in candidates:
            if sweep.stop:
                return
            if not _are_unchanged(builder, packages, sweep):
                continue
            ttl, only = 2 * sweep.settings.heartbeat, {model.name}
            while (lease := state.lease(sweep_id, owner, ttl, only, builds)) is not None:
                _record(sweep, lease, {one.id: one for one in packages})


def _candidates(sweep: Sweep) -> Iterator[tuple[PlannedModel, list[PlannedPackage]]]:
    """Models with open cells that all have a version under another stamp."""
    selected = sweep.among()
    for model in sweep.plan.models:
        if selected is not None and model.name not in selected:
            continue
        statuses = sweep.state.statuses(sweep.info.id, model.name)
        fresh, planned = {Status.PLANNED, Status.CANCELLED}, sweep.plan.packages_of(model)
        packages = [one for one in planned if statuses.get(one.id) in fresh]
        only = len(packages) == sum(status.open for status in statuses.values())
        if packages and only and all(one.id in sweep.newest for one in packages):
            yield model, packages


def _are_unchanged(builder: Builder, packages: list[PlannedPackage], sweep: Sweep) -> bool:
    """Whether a build would only make the newest versions again, according to the store."""
    # Without a build before, planning a model of the hub would need a request.
    if not all(one.is_export or last_keys(builder.store.notes, one.id) for one in packages):
        return False
    watching = Watching(cancel=sweep.stop.event)
    try:
        return all(
            builder.predict(one.cell, watching, export=one.is_export) == sweep.newest[one.id].tree
            for one in packages
        )
    except (BuildFailed, Cancelled):
        return False  # the build itself says what is wrong


def _record(sweep: Sweep, lease: Lease, cells: Mapping[str, PlannedPackage]) -> None:
    state, sweep_id = sweep.state, sweep.info.id
    done = False
    try:
        leased = state.statuses(sweep_id, lease.model, lease.needs)
        for cell in leased.keys() & cells.keys():
            newest = sweep.newest[cell]
            # A group that lacks a member is never predicted, so this one is whole.
            members = [one.id for one in cells[cell].cell.members]
            detail = {"same_as": newest.version, **({"members": members} if members else {})}
            facts = Facts(tree=newest.tree, detail=detail)
            state.record(lease, sweep_id, cell, Status.UNCHANGED, facts)
        done = True
    finally:
        state.release(lease, done=done)

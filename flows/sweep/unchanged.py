"""With `--if-changed`: settles unchanged models before any slot starts.

Stage keys and the store alone tell what a build would produce. A model whose open cells all equal
their newest versions needs no slot, so a sweep of an unchanged catalog starts no Prefect server.
A model with any other open cell is left to the slots as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from flows.cli.settings import Settings
from flows.sweep.lifecycle import Begun, among
from flows.sweep.local import open_builder
from flows.sweep.planned_packages import PlannedPackage, packages_of_model
from flows.sweep.stop import Stop
from machine.processes import this_host
from matrix.model import Plan, PlannedModel
from matrix.status import Status
from state.ledger import State
from state.records import Facts, Lease, Owner
from workers.build.builder import Builder
from workers.build.keys import last_keys
from workers.errors import BuildFailed, Cancelled


def settle_unchanged(
    plan: Plan, begun: Begun, state: State, settings: Settings, stop: Stop
) -> None:
    """Record every model as unchanged whose open cells all equal their newest versions."""
    candidates = list(_candidates(plan, begun, state))
    if not candidates:
        return
    owner = Owner.here(f"{this_host().partition('/')[0]}/{os.getpid()}/unchanged")
    with open_builder(plan, settings) as builder:
        for model, packages in candidates:
            if stop:
                return
            if not _built_before(builder, packages):
                continue
            trees = _predicted(builder, packages, stop)
            if any(begun.newest[planned].tree != tree for planned, tree in trees.items()):
                continue
            ttl = 2 * settings.heartbeat
            while (lease := state.lease(begun.info.id, owner, ttl, {model.name})) is not None:
                _record(state, begun, lease, trees)


def _candidates(
    plan: Plan, begun: Begun, state: State
) -> Iterator[tuple[PlannedModel, list[PlannedPackage]]]:
    """Models with open cells that all have a version under another stamp."""
    selected = among(plan, state, begun.info.id)
    for model in plan.models:
        if selected is not None and model.name not in selected:
            continue
        statuses = state.statuses(begun.info.id, model.name)
        packages = [
            planned
            for planned in packages_of_model(plan, model)
            if statuses.get(planned.id) in {Status.PLANNED, Status.CANCELLED}
        ]
        only = len(packages) == sum(status.open for status in statuses.values())
        if packages and only and all(planned.id in begun.newest for planned in packages):
            yield model, packages


def _built_before(builder: Builder, packages: list[PlannedPackage]) -> bool:
    """Whether this store has built the cells; planning a model of the hub would need a request."""
    return all(last_keys(builder.store.notes, one.id) for one in packages if not one.is_export)


def _predicted(
    builder: Builder, packages: list[PlannedPackage], stop: Stop
) -> dict[str, str | None]:
    """The tree digest that each package would have; None if only a build can tell."""
    trees: dict[str, str | None] = {}
    try:
        for planned in packages:
            tree = builder.predict(planned.cell, export=planned.is_export, cancel=stop.event)
            trees[planned.id] = tree
            if tree is None:
                break
    except (BuildFailed, Cancelled):
        return {packages[0].id: None}  # the build itself says what is wrong
    return trees


def _record(state: State, begun: Begun, lease: Lease, trees: dict[str, str | None]) -> None:
    done = False
    try:
        leased = state.statuses(begun.info.id, lease.model, lease.needs)
        for cell in leased.keys() & trees.keys():
            facts = Facts(tree=trees[cell], detail={"same_as": begun.newest[cell].version})
            state.record(lease, begun.info.id, cell, Status.UNCHANGED, facts)
        done = True
    finally:
        state.release(lease, done=done)

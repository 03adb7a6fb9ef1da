"""Which cells there are: models x targets x precisions, and device profiles to compile for.

Catalog entries with the same `context_group` have no compiled cells of their own. The group has
them, as if it were a model, and each holds the graphs of all its entries. An entry that is alone in
its group keeps its compiled cells; the components of such a composite share a context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from matrix.cellid import cell_id
from matrix.errors import Problem
from matrix.model import Cell, Model, Overrides, Policy, Profile, Target
from matrix.nearest import quote
from matrix.needs import compiling
from matrix.policy import Flags, for_task, overrides_of, policies

Groups = Mapping[str, tuple[Model, ...]]
"""The entries of each group that has several, in catalog order."""


def groups_of(models: Iterable[Model]) -> Groups:
    """The groups of a catalog."""
    found: dict[str, list[Model]] = {}
    for model in models:
        if model.context_group:
            found.setdefault(model.context_group, []).append(model)
    return {name: tuple(members) for name, members in found.items() if len(members) > 1}


def group_models(groups: Groups) -> tuple[Model, ...]:
    """Each group as a model. What is said once for all of it is taken from its first entry."""
    return tuple(
        replace(
            members[0],
            id=name,
            task="",
            model_type="context",
            needs=tuple(dict.fromkeys(need for member in members for need in member.needs)),
        )
        for name, members in groups.items()
    )


def group_problems(groups: Groups, models: Sequence[Model]) -> list[Problem]:
    """Groups that are called like a model: their cells could not be told apart."""
    owners = {model.id: model for model in models}
    return [
        Problem(
            members[0].where,
            f"context_group {quote(name)} is also the id of a model ({owners[name].where})",
            "choose another name for the group",
        )
        for name, members in groups.items()
        if name in owners
    ]


@dataclass(frozen=True, slots=True)
class Crossing:
    """What decides which cells there are; they have no package and version yet."""

    flags: Flags
    compile: tuple[Profile, ...]
    groups: Groups
    emulated: bool
    timeout: float
    publish_timeout: float

    def cells(self, models: Iterable[Model], targets: Iterable[Target]) -> Iterator[Cell]:
        """The cells of these models and targets."""
        rows = tuple(targets)
        # Most models override nothing, so a target has one policy for all of them.
        plain: dict[Target, tuple[Policy, ...]] = {}
        for model in models:
            if model.name in self.groups:
                yield from self._of_group(model, rows)
                continue
            special = bool(model.per_target) or model.overrides != Overrides()
            for row in (for_task(row, model.exported_as or model.task) for row in rows):
                overrides = overrides_of(model, row) if special else model.overrides
                if special:
                    found = policies(overrides, row, self.flags)
                elif (known := plain.get(row)) is None:
                    found = plain[row] = policies(overrides, row, self.flags)
                else:
                    found = known
                grouped = model.context_group in self.groups
                for policy in found:
                    for profile in (None, *(() if grouped else self._profiles(row))):
                        yield self._cell(model, row, overrides, policy, profile)

    def _profiles(self, row: Target) -> tuple[Profile, ...]:
        return tuple(one for one in self.compile if one.target == row.label)

    def _of_group(self, group: Model, rows: Iterable[Target]) -> Iterator[Cell]:
        """A compiled cell for each precision that all members have."""
        portable = replace(self, compile=(), groups={})
        for row in rows:
            profiles = self._profiles(row)
            cells = [list(portable.cells([one], [row])) for one in self.groups[group.name]]
            for first in cells[0] if profiles else ():
                members = tuple(filter(None, (_like(first, others) for others in cells)))
                if len(members) < len(cells):
                    continue
                skips = (f"{one.model.name}: {one.skip}" for one in members if one.skip)
                overrides = replace(overrides_of(members[0].model, row), skip=next(skips, None))
                for profile in profiles:
                    cell = self._cell(group, row, overrides, first.policy, profile)
                    yield replace(cell, members=members)

    def _cell(
        self,
        model: Model,
        row: Target,
        overrides: Overrides,
        policy: Policy,
        profile: Profile | None,
    ) -> Cell:
        label = profile.label if profile else None
        return Cell(
            id=cell_id(model.id, model.task, row.label, policy.shown, label),
            model=model,
            target=row,
            policy=policy,
            package="",
            version="",
            timeout=overrides.timeout or self.timeout,
            publish_timeout=overrides.publish_timeout or self.publish_timeout,
            skip=overrides.skip,
            needs=(*model.needs, compiling(label, emulated=self.emulated))
            if label
            else model.needs,
            profile=profile,
        )


def _like(first: Cell, others: Iterable[Cell]) -> Cell | None:
    """The one that has the same precision in its id."""
    return next((one for one in others if one.policy.shown == first.policy.shown), None)

"""Context groups: catalog entries that are compiled into one context.

Entries with the same `context_group` have no compiled cells of their own. The group has them, as if
it were a model, and each holds the graphs of all its entries. An entry that is alone in its group
keeps its compiled cells; the components of such a composite share a context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from matrix.errors import Problem
from matrix.model import Model
from matrix.nearest import quote

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

"""Unique slugs: what stands for a model in package names and versions.

A slug is lossy (`a/b-c` and `a-b/c` are one), and a version joins several of them. Of the entries
that would share a name, the senior one keeps it and the others get a short hash, so that a new
entry never renames another one. Seniority is the order of publication, then that of the catalog;
the selection plays no part.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from matrix.model import Model
from matrix.policy import PRECISIONS

MODEL_LIMIT = 128
HASHES = (8, 16, 32)
"""Hex digits of the suffix; more than the first only for ids that were chosen to collide."""

RESERVED = "index"
"""The model name under which the sweep index is published."""


Seniority = Callable[[], Iterable[str]]
"""The entries (`Model.name`) that were published before, oldest first; called only if names
collide."""

Claims = Callable[[str], Iterable[str]]
"""All texts that a name keeps for itself."""


@dataclass(frozen=True, slots=True)
class Names:
    """The slugs of a catalog: by model id, and by entry (`Model.name`) with the task."""

    models: Mapping[str, str]
    entries: Mapping[str, str]
    yielded: Mapping[str, str] = field(default_factory=dict)
    """Each name with a hash and the one that has the plain name: by model id, and by entry."""


def slug(text: str) -> str:
    """Lower case; every run of other than 0-9 and a-z becomes one dash; none at the ends."""
    return re.sub(r"[^0-9a-z]+", "-", text.lower()).strip("-")


def names_of(
    models: Sequence[Model],
    labels: Sequence[str],
    limit: int,
    seniority: Seniority = tuple,
    model_limit: int = MODEL_LIMIT,
    profiles: Sequence[str] = (),
) -> Names:
    """Unique slugs for all entries of a catalog, whatever profiles its cells are compiled for.

    `limit` is the room that a version has for an entry, `model_limit` that of a package name.
    """
    claims = _claims(tuple(map(slug, labels)), tails_of(profiles))
    found = _names_of(models, claims, limit, model_limit)
    if not found.yielded:
        return found
    ranks = {name: rank for rank, name in enumerate(seniority())}
    ordered = sorted(models, key=lambda m: ranks.get(m.name, len(ranks)))
    return _names_of(ordered, claims, limit, model_limit)


def has_plain_name(model: str, task: str, version: str, profile: str | None = None) -> bool:
    """Whether a cell was published under its model's name without a hash."""
    plain = "-".join(filter(None, (slug(model), slug(task))))
    tails = tails_of([profile] if profile else [])
    return any(version.endswith(f"-{plain}{tail}") for tail in tails)


def tails_of(profiles: Iterable[str]) -> tuple[str, ...]:
    """What the version of a cell may have after the name of its entry."""
    precisions = ("", *(f"-{precision}" for precision in PRECISIONS))
    ends = ("", *(f"-{slug(profile)}" for profile in profiles))
    return tuple(precision + end for precision in precisions for end in ends)


def _names_of(models: Sequence[Model], claims: Claims, limit: int, model_limit: int) -> Names:
    by_id, yielded = _unique(
        {model.id: slug(model.id) for model in models},
        lambda text: (text,),
        model_limit,
        taken=(RESERVED,),
    )
    entries, more = _unique(
        {
            model.name: "-".join(filter(None, (by_id[model.id], slug(model.task))))
            for model in models
        },
        claims,
        limit,
    )
    return Names(by_id, entries, {**yielded, **more})


def _claims(labels: Sequence[str], tails: Sequence[str]) -> Claims:
    """Gives the texts that may contain the slug of an entry in the versions of its cells."""
    heads = {""}
    for short in labels:
        heads |= {long[len(short) + 1 :] + "-" for long in labels if long.startswith(short + "-")}

    def claims(text: str) -> Iterable[str]:
        return [head + text + tail for head in heads for tail in tails]

    return claims


def _unique(
    wanted: Mapping[str, str], claims: Claims, limit: int, taken: Iterable[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Names one after the other; one that would be empty, too long or taken gets a hash.

    Also returns who has the plain name of each one that was taken.
    """
    names: dict[str, str] = {}
    yielded: dict[str, str] = {}
    owners = dict.fromkeys(taken, "")
    for key, text in wanted.items():
        for name in _candidates(text, key, limit):
            claimed = list(claims(name))
            rivals = [owners[claim] for claim in claimed if claim in owners]
            names[key] = name
            if not rivals:
                break
            if rivals[0]:
                yielded.setdefault(key, rivals[0])
        for claim in claimed:
            owners.setdefault(claim, key)
    return names, yielded


def _candidates(text: str, key: str, limit: int) -> Iterator[str]:
    """The name without a hash if possible, then with longer and longer ones."""
    if text and len(text) <= limit:
        yield text
    for digits in HASHES:
        yield _hashed(text, key, digits, limit)


def _hashed(text: str, key: str, digits: int, limit: int) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()[:digits]
    room = max(limit - len(digest) - 1, 0)
    return f"{text[:room].rstrip('-')}-{digest}".lstrip("-") if text else f"model-{digest}"[-limit:]

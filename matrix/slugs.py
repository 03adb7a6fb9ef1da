"""Slugs that stay apart: what stands for a model in packages and versions.

A slug is lossy (`a/b-c` and `a-b/c` are one), and a version joins several of them. Whoever would
share a name with another entry of the catalog gets a short hash, all of them alike, so that a
name depends on the catalog alone and never on what else happens to be selected or comes first.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from matrix.model import Model
from matrix.precision import PRECISIONS

MODEL_LIMIT = 128
HASHES = (8, 16, 32)
"""Hex digits of the suffix; more than the first only where somebody chose an id to collide."""

RESERVED = "index"
"""The model name under which the sweep index is published."""


@dataclass(frozen=True, slots=True)
class Names:
    """The slugs of a catalog: by model id, and by entry (`Model.name`) with the task."""

    models: Mapping[str, str]
    entries: Mapping[str, str]


def slug(text: str) -> str:
    """Lower case; every run of other than 0-9 and a-z becomes one dash; none at the ends."""
    return re.sub(r"[^0-9a-z]+", "-", text.lower()).strip("-")


def names_of(models: Sequence[Model], labels: Sequence[str], limit: int) -> Names:
    """Unique slugs for all entries of a catalog; `limit` is what a version leaves for one."""
    by_id = _unique(
        {model.id: slug(model.id) for model in models},
        lambda text: (text,),
        MODEL_LIMIT,
        taken=(RESERVED,),
    )
    claims = _claims(tuple(map(slug, labels)))
    entries = _unique(
        {
            model.name: "-".join(filter(None, (by_id[model.id], slug(model.task))))
            for model in models
        },
        claims,
        limit,
    )
    return Names(by_id, entries)


def _claims(labels: Sequence[str]) -> Callable[[str], Iterable[str]]:
    """Everything that a cell of an entry may add to its slug, on either side, in a version."""
    heads = {""}
    for short in labels:
        heads |= {long[len(short) + 1 :] + "-" for long in labels if long.startswith(short + "-")}
    tails = ("", *(f"-{precision}" for precision in PRECISIONS))

    def claims(text: str) -> Iterable[str]:
        return [head + text + tail for head in heads for tail in tails]

    return claims


def _unique(
    wanted: Mapping[str, str],
    claims: Callable[[str], Iterable[str]],
    limit: int,
    taken: Iterable[str] = (),
) -> dict[str, str]:
    """Give a hash to everyone whose name is empty, too long, taken or claimed by another one.

    A hashed name may meet a name that looks just like it, so this goes on until all stay apart.
    """
    names = {key: text if text and len(text) <= limit else "" for key, text in wanted.items()}
    steps = dict.fromkeys(names, 0)
    clashing = {key for key, text in names.items() if not text}
    while True:
        for key in clashing:
            names[key] = _hashed(wanted[key], key, HASHES[min(steps[key], len(HASHES) - 1)], limit)
            steps[key] += 1
        owners: dict[str, set[str]] = defaultdict(set)
        for name in taken:
            owners[name].add("")
        for key, text in names.items():
            for claim in claims(text):
                owners[claim].add(key)
        clashing = {key for keys in owners.values() if len(keys) > 1 for key in keys if key}
        if not clashing or all(steps[key] >= len(HASHES) for key in clashing):
            return names


def _hashed(text: str, key: str, digits: int, limit: int) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()[:digits]
    room = max(limit - len(digest) - 1, 0)
    return f"{text[:room].rstrip('-')}-{digest}".lstrip("-") if text else f"model-{digest}"[-limit:]

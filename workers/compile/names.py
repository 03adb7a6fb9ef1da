"""Names of context models: apart from each other on every disk, upper and lower case alike."""

from __future__ import annotations

from collections.abc import Sequence

SUFFIX = "_ctx"


def output_stems(stems: Sequence[str]) -> list[str]:
    """A stem for each model, `model` or `model_1`; the first to ask for a name gets it.

    A name that a model has by itself is not given to another one: of model, model and model_1
    the second becomes model_2.
    """
    own = {stem.casefold() for stem in stems}
    taken: set[str] = set()
    found = []
    for stem in stems:
        name, number = stem, 0
        while name.casefold() in taken or (number and name.casefold() in own):
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.casefold())
        found.append(name)
    return found

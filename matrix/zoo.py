"""The packaged catalog `zoo`: a tiny seeded model for every pair of architecture and task that is
said to build.

The pairs are those of the engine optimum's table of abilities; `data/zoo.toml` has seeds and sizes.
The configurations follow from those of Transformers, so they are made where that is
(`workers.sources.source`): here an entry has what is its architecture's own, and the key `TINY`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from matrix.abilities import abilities_of
from matrix.coverage import builds
from matrix.extensions import ENGINE, extensions
from matrix.model import Model, Source, SourceKind

FILE = Path(__file__).parent / "data" / "zoo.toml"
NAME = "zoo"
TINY = "tiny"
"""In the configuration of an entry: make it tiny, for this task."""
_SEED = 5


@cache
def tables() -> Mapping[str, Any]:
    """Seeds and sizes."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def models() -> Iterator[Model]:
    """All entries."""
    abilities = abilities_of(ENGINE)
    assert abilities is not None, "the table is part of this package"
    added = {name for one in extensions() for name in one.tasks()}
    for architecture in [name for name in abilities.architectures if name not in added]:
        own = tables()["architecture"].get(architecture, {})
        for task in abilities.architectures[architecture]:
            if builds(architecture, task, abilities):
                config = {**own, TINY: task}
                seed = _seed(architecture, task)
                source = Source(SourceKind.RANDOM, architecture, seed=seed, config=config)
                name = f"{NAME}/{architecture}"
                yield Model(name, task, source, architecture, NAME, where=f"zoo: {name}:{task}")


def _seed(architecture: str, task: str) -> int:
    seeds = tables()["seed"]
    return int(seeds.get(f"{architecture}:{task}", seeds.get(f"*:{task}", _SEED)))

"""The packaged catalog `zoo`: a tiny seeded model for every pair of architecture and task.

`python -m workers.optimum_engine.zoo` writes it from the table of abilities: the configuration of
Transformers for each architecture, made tiny by the values in `zoo_sizes.toml`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matrix.abilities import abilities_of
from matrix.coverage import builds
from workers.sources.load import random_config

SIZES = Path(__file__).parent / "zoo_sizes.toml"
ZOO = Path(__file__).parents[2] / "matrix" / "data" / "zoo.toml"
SEED = 5
HEAD = "# Written by `python -m workers.optimum_engine.zoo`.\n"
_TOKENS = ("_token_id", "_token_index")


def tiny(architecture: str, task: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The values that make the default configuration of an architecture tiny, for a task."""
    own = tables["architecture"].get(architecture, {})
    config = random_config({"ref": architecture, "config": own})
    sizes = {**tables["sizes"], **tables["task"].get(task, {})}
    return _merged(dict(_small(config, {**tables, "sizes": sizes})), own)


def seed(architecture: str, task: str, tables: Mapping[str, Any]) -> int:
    """The seed of the weights of a pair."""
    seeds = tables["seed"]
    return int(seeds.get(f"{architecture}:{task}", seeds.get(f"*:{task}", SEED)))


def _whole(value: Any) -> bool:
    """Whether a value is a configuration of its own, which replaces the default."""
    return isinstance(value, dict) and "model_type" in value


def _small(config: Any, tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    sizes, lists = tables["sizes"], tables["lists"]
    vocabulary = min(_vocabulary(config), sizes["vocab_size"])
    spare = 2
    for name, value in sorted(vars(config).items()):
        if hasattr(value, "to_diff_dict"):
            if inner := dict(_small(value, tables)):
                yield name, inner
        elif isinstance(value, list | tuple):
            if name in lists and list(value) != lists[name]:
                yield name, lists[name]
        elif isinstance(value, bool) or not isinstance(value, int | float):
            continue
        elif name.endswith(_TOKENS) and vocabulary and value >= vocabulary:
            yield name, spare
            spare += 1
        elif name in sizes and (value > sizes[name] or isinstance(value, float)):
            yield name, sizes[name]


def _vocabulary(config: Any) -> int:
    text = getattr(config, "text_config", None)
    return getattr(config, "vocab_size", None) or getattr(text, "vocab_size", None) or 0


def _merged(small: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in own.items():
        inner = small.get(name)
        if isinstance(value, dict) and isinstance(inner, dict) and not _whole(value):
            small[name] = _merged(inner, value)
        else:
            small[name] = value
    return small


def entries() -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """Architecture, task, seed and configuration of every entry."""
    abilities = abilities_of("optimum")
    assert abilities is not None
    tables = tomllib.loads(SIZES.read_text(encoding="utf-8"))
    for architecture, tasks in abilities.architectures.items():
        usual = tiny(architecture, "", tables)
        for task in tasks:
            if builds(architecture, task, abilities):
                config = tiny(architecture, task, tables) if task in tables["task"] else usual
                yield architecture, task, seed(architecture, task, tables), config


def text() -> str:
    """The catalog."""
    return HEAD + "".join(_entry(*entry) for entry in entries())


def _entry(architecture: str, task: str, own_seed: int, config: Mapping[str, Any]) -> str:
    return f"""
[[model]]
id = "zoo/{architecture}"
task = "{task}"
model_type = "{architecture}"
group = "zoo"
random = {{ architecture = "{architecture}", seed = {own_seed}, config = {_toml(config)} }}
"""


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def main() -> None:
    """Write the catalog."""
    ZOO.write_text(text(), encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()

"""Configurations of random models; those of the zoo are Transformers' own, made tiny.

`matrix/data/zoo.toml` has the sizes by name, and what single architectures need besides.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from matrix.zoo import TINY, tables
from workers.sources.errors import export_error, failing

_TOKENS = ("_token_id", "_token_index")


def configuration(source: Mapping[str, Any]) -> dict[str, Any]:
    """What a random source says of its configuration."""
    own = copy.deepcopy(dict(source.get("config") or {}))
    task = own.pop(TINY, None)
    if task is None:
        return own
    known = tables()
    sizes = {**known["sizes"], **known["task"].get(task, {})}
    return _merged(dict(_small(made(source["ref"], own), sizes, known["lists"])), own)


def made(architecture: str, values: Mapping[str, Any]) -> Any:
    """The configuration of Transformers with these values."""
    from transformers import AutoConfig

    # A copy: Transformers takes nested configurations apart.
    config = copy.deepcopy(dict(values))
    if "backbone_config" in config:
        config.setdefault("backbone", None)  # many name one by default, and TOML has no null
    what = f"'{architecture}' with this config is not a Transformers architecture"
    hint = "correct architecture or config in the catalog"
    with failing(export_error, what, hint, ValueError, TypeError, KeyError):
        return AutoConfig.for_model(architecture, **config)


def _whole(value: Any) -> bool:
    """Whether a value is a configuration of its own, which replaces the default."""
    return isinstance(value, dict) and "model_type" in value


def _small(
    config: Any, sizes: Mapping[str, Any], lists: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    vocabulary = min(_vocabulary(config), sizes["vocab_size"])
    spare = 2
    for name, value in sorted(vars(config).items()):
        if hasattr(value, "to_diff_dict"):
            if inner := dict(_small(value, sizes, lists)):
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

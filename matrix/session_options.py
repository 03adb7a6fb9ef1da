"""What a session may be given when a model is opened: for hypotheses about the runtime.

Only options that change how fast a model runs. One that changes what is computed (half precision,
for instance) would bypass the accuracy check, which opens models without options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix.nearest import hint, quote
from matrix.reader import Entry
from matrix.vocabulary import SESSION_OPTIONS

LEVELS = ("disabled", "basic", "extended", "all")
"""ONNX Runtime's graph optimization level while it opens a model."""

WITHOUT_LEVEL = frozenset({"OpenVINOExecutionProvider"})
"""Providers that this product opens without ONNX Runtime."""


def read_session(entry: Entry, providers: Mapping[str, str]) -> dict[str, str]:
    """The table `runtime` of a hypothesis: `level`, and options of the provider.

    `providers`: what its targets run on, by label. An option must exist on all of them.
    """
    inner = entry.inner("runtime")
    found: dict[str, str] = {}
    if level := inner.choice("level", LEVELS):
        found["level"] = level
    known = ["level", *_common(providers.values())]
    for name, value in inner.data.items():
        if name == "level":
            continue
        if name not in known:
            inner.bad(_unknown(name, providers), hint(name, known))
        elif text := _value(inner, name, value, providers):
            found[name] = text
    if "level" in found and (bare := _without_level(providers)):
        inner.bad(f"{bare} is opened without ONNX Runtime, so it has no level")
    return found


def _common(providers: Any) -> list[str]:
    tables = [SESSION_OPTIONS.get(one, {}) for one in providers]
    return [name for name in (tables[0] if tables else ()) if all(name in one for one in tables)]


def _unknown(name: str, providers: Mapping[str, str]) -> str:
    without = sorted(
        label for label, one in providers.items() if name not in SESSION_OPTIONS.get(one, {})
    )
    return f"{without[0] if without else 'the runtime'} has no option {quote(name)}"


def _value(inner: Entry, name: str, value: object, providers: Mapping[str, str]) -> str:
    """The value as text; empty and a problem if the option does not take it."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    valid = next(
        table[name] for one in providers.values() if name in (table := SESSION_OPTIONS[one])
    )
    if valid and text not in valid:
        inner.bad(f"{name} cannot be {quote(value)}", hint(text, valid))
        return ""
    if not valid and not (text.isascii() and text.isdigit()):
        inner.bad(f"{name} must be a whole number, not {quote(value)}")
        return ""
    return text


def _without_level(providers: Mapping[str, str]) -> str:
    return next((label for label, one in providers.items() if one in WITHOUT_LEVEL), "")

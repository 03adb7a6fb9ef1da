"""What a session may be given when a model is opened: for hypotheses about the runtime.

Only options that change how fast a model runs. One that changes what is computed (half precision,
for instance) would bypass the accuracy check, which opens models without options.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    tables = {label: _options(providers[label]) for label in sorted(providers)}
    first, *others = tables.values() or (_options(""),)
    common = [name for name in first if all(name in one for one in others)]
    found: dict[str, str] = {}
    for name, value in inner.data.items():
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if name not in common:
            without = (label for label, one in tables.items() if name not in one)
            told = f"{next(without, 'the runtime')} has no option {quote(name)}"
            inner.bad(told, hint(name, common))
        elif first[name] and text not in first[name]:
            inner.bad(f"{name} cannot be {quote(value)}", hint(text, first[name]))
        elif not first[name] and not (text.isascii() and text.isdigit()):
            inner.bad(f"{name} must be a whole number, not {quote(value)}")
        else:
            found[name] = text
    return found


def _options(provider: str) -> Mapping[str, tuple[str, ...]]:
    """The options that a model may be opened with, and their values."""
    level = {} if provider in WITHOUT_LEVEL else {"level": LEVELS}
    return {**level, **SESSION_OPTIONS.get(provider, {})}

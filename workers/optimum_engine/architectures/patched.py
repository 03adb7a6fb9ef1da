"""Replaces, while a tool runs, those of its functions that would read all weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(name: str, value: Any, *modules: Any) -> Iterator[None]:
    """Give modules another function under a name that each of them has."""
    kept = [(module, getattr(module, name)) for module in modules]
    for module in modules:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, before in kept:
            setattr(module, name, before)

"""Errors of the operating system that are the user's: a path that cannot be read or written.

A module of its own, because engines in foreign interpreters import `machine.disk` and have nothing
but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from machine.disk import reason
from matrix.errors import UsageError


@contextmanager
def user_errors(text: str, hint: str = "") -> Iterator[None]:
    """Turn an `OSError` into an error of usage: the text, and what the system refused."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{text}: {reason(error)}", hint=hint) from None

"""A virus scanner of Windows, as far as we notice it: it holds every file for a moment."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

SHARING_VIOLATION, NOT_EMPTY = 32, 145


class Held(PermissionError):
    """What Windows says then; only there has an `OSError` such a number by itself."""

    def __init__(self, winerror: int, path: str) -> None:
        super().__init__(13, "The process cannot access the file", path)
        self.winerror = winerror


class Scanner:
    """Refuses to rename or remove a path as often as told, and lets it go then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int = 2) -> None:
        self._times = times
        self.refused = Counter[str]()
        for name in ("remove", "rename", "replace", "rmdir", "unlink"):
            monkeypatch.setattr(os, name, self._holding(getattr(os, name), name))

    def _holding(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def refuse(path: Any, *more: Any, **options: Any) -> Any:
            key = f"{name} {os.fspath(path)}"
            if self.refused[key] < self._times:
                self.refused[key] += 1
                raise Held(NOT_EMPTY if name == "rmdir" else SHARING_VIOLATION, os.fspath(path))
            return call(path, *more, **options)

        return refuse

"""Values that stand once in a list and are named by their place in it."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Places(Generic[T]):
    """A list that gives equal values (by a key that can be hashed) one place."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._places: dict[object, int] = {}

    def of(self, value: T, key: object = None) -> int:
        """The place of a value, a new one if it has none."""
        name = value if key is None else key
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self.values)
            self.values.append(value)
        return place

"""A model under test: what its user gives it, and how its answers are judged."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Run = Callable[[Feeds], list[Array]]
"""Runs a package's graph on inputs by name, batch axis included."""


class Subject(ABC):
    """A trained model with calibration data and held-out inputs."""

    name: ClassVar[str]
    package: ClassVar[str]
    """Where its weights are from."""
    task: ClassVar[str]
    measured: ClassVar[str]
    """What `score` tells, in words."""
    shapes: ClassVar[Mapping[str, int]] = {}
    """Dimensions for the catalog, by name."""
    calibrated = True
    """False if the catalog names no dataset: the model has a processor of its own."""

    @abstractmethod
    def source(self, folder: Path) -> str:
        """Lines of the catalog that name the model. May write it into the folder."""

    @abstractmethod
    def calibration(self) -> Sequence[Feeds]:
        """Inputs as users have them, with a batch axis, none of them held out."""

    @abstractmethod
    def answers(self, run: Run) -> list[Any]:
        """What the model says of every held-out input."""

    @abstractmethod
    def truth(self) -> list[Any]:
        """What it should say."""

    @abstractmethod
    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """How well answers agree, 0 to 1: with the truth, or of two graphs with each other."""

    def vectors(self, run: Run) -> Array | None:
        """Its embeddings of the held-out inputs, of a model that embeds."""
        return None

    def random(self, part: int) -> np.random.Generator:
        """Random numbers of a part of its data: 0 calibrates, 1 is held out."""
        return np.random.default_rng([part, *self.name.encode()])


@cache
def texts() -> Mapping[str, Any]:
    """The bench's texts."""
    return tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))


def share_equal(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The share of equal answers."""
    return float(np.mean([one == other for one, other in zip(found, wanted, strict=True)]))


def ordered(vectors: Array, kinds: Sequence[int]) -> list[float]:
    """For each vector the share of pairs, one of its kind and one of another, of which the one of
    its kind is the more similar."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar, same = unit @ unit.T, np.equal.outer(kinds, kinds)
    others = ~same
    np.fill_diagonal(same, val=False)
    return [
        float((row[own][:, None] > row[other][None]).mean())
        for row, own, other in zip(similar, same, others, strict=True)
    ]


def closeness(found: Sequence[float], wanted: Sequence[float]) -> float:
    """How near shares are to each other on average."""
    return 1 - float(np.mean(np.abs(np.subtract(found, wanted))))

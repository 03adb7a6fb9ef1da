"""Simulated experiments: three sessions of three models, in rounds, with noise of a kind.

A kind of noise gives for each session the times of all turns as an array
(rounds, models, runs), around 1, already in the order of time within a round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workers.measure.verdict import Round

Noise = Callable[[Any, int, int], Any]
"""From a random generator, rounds and runs to times."""
SESSIONS, ROUNDS, RUNS = 3, 20, 25
RECORDED = Path(__file__).with_name("recorded.json")
"""By target and threads, sessions of a model against itself on two cores with a load of 20 to 25:
of each round the medians of the three turns in nanoseconds. Made by
`python -m tests.bench.measure --record`."""


def gaussian(spread: float, between: float = 0.0) -> Noise:
    """Independent runs; `between`: what sessions of the same model differ by."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        own = np.exp(random.normal(0, between, (1, 3, 1)))
        return own * np.exp(random.normal(0, spread, (rounds, 3, runs)))

    return times


def heavy_tailed(spread: float, between: float = 0.005) -> Noise:
    """A few runs take many times as long."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        own = np.exp(random.normal(0, between, (1, 3, 1)))
        return own * (1 + spread * random.pareto(1.2, (rounds, 3, runs)))

    return times


def bimodal_runs(gap: float, share: float = 0.5) -> Noise:
    """Every run is fast or slow by chance."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        slow = random.random((rounds, 3, runs)) < share
        return (1 + gap * slow) * np.exp(random.normal(0, 0.01, slow.shape))

    return times


def bimodal_turns(gap: float, share: float = 0.3) -> Noise:
    """Whole turns are fast or slow: another process comes and goes."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        slow = random.random((rounds, 3, 1)) < share
        return (1 + gap * slow) * np.exp(random.normal(0, 0.01, (rounds, 3, runs)))

    return times


def bimodal_sessions(gap: float, share: float = 0.5) -> Noise:
    """A model is fast or slow for its whole session, as its process happens to be laid out."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        slow = random.random((1, 3, 1)) < share
        return (1 + gap * slow) * np.exp(random.normal(0, 0.01, (rounds, 3, runs)))

    return times


def drifting(total: float, between: float = 0.005) -> Noise:
    """The machine becomes slower by that share over a session, whichever model runs."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        own = np.exp(random.normal(0, between, (1, 3, 1)))
        clock = np.linspace(0, 1, rounds * 3 * runs).reshape(rounds, 3, runs)
        # The models take their turns in random order.
        for one in clock:
            random.shuffle(one)
        return own * (1 + total * clock) * np.exp(random.normal(0, 0.01, clock.shape))

    return times


def walking(step: float) -> Noise:
    """The speed of the machine wanders from turn to turn."""

    def times(random: Any, rounds: int, runs: int) -> Any:
        speed = np.exp(np.cumsum(random.normal(0, step, rounds * 3))).reshape(rounds, 3, 1)
        for one in speed:
            random.shuffle(one)
        return speed * np.exp(random.normal(0, 0.02, (rounds, 3, runs)))

    return times


KINDS: Mapping[str, Noise] = {
    "quiet": gaussian(0.01, 0.002),
    "sessions differ by 1 %": gaussian(0.02, 0.01),
    "sessions differ by 3 %": gaussian(0.05, 0.03),
    "sessions differ by 10 %": gaussian(0.05, 0.1),
    "heavy-tailed": heavy_tailed(0.05),
    "very heavy-tailed": heavy_tailed(0.5),
    "bimodal runs": bimodal_runs(0.3),
    "bimodal runs, far apart": bimodal_runs(10.0, 0.3),
    "bimodal turns": bimodal_turns(0.5),
    "bimodal sessions": bimodal_sessions(0.1),
    "bimodal sessions, far apart": bimodal_sessions(10.0),
    "drifting by 30 %": drifting(0.3),
    "wandering": walking(0.05),
}


def experiment(
    noise: Noise, random: Any, slower: float = 0.0, sessions: int = SESSIONS
) -> list[list[Round]]:
    """The rounds of a comparison in which the subject is slower by a share."""
    found = []
    for _ in range(sessions):
        medians = np.median(noise(random, ROUNDS, RUNS), axis=2)
        found.append([Round(this * (1 + slower), other, null) for this, other, null in medians])
    return found


def recorded(path: Path = RECORDED) -> dict[str, list[Any]]:
    """The recorded sessions of each target, as arrays (rounds, models)."""
    found = json.loads(path.read_bytes())
    return {name: [np.array(one, float) for one in sessions] for name, sessions in found.items()}


def drawn(
    recordings: Sequence[Any], random: Any, slower: float = 0.0, sessions: int = SESSIONS
) -> list[list[Round]]:
    """A comparison of recorded sessions, in which the subject would have been slower by a share.

    All three turns are of the same model, so any of them can be the subject's.
    """
    found = []
    for pick in random.choice(len(recordings), sessions, replace=False):
        medians = recordings[pick][:, random.permutation(3)]
        found.append([Round(this * (1 + slower), other, null) for this, other, null in medians])
    return found

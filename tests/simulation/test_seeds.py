"""Every seed of the nightly's 10,000 keeps the rules; 300 of them run with the other tests."""

from __future__ import annotations

import pytest

from tests.simulation.run import run

USUAL = range(0, 300, 10)
NIGHTLY = range(300, 10_000, 100)


def _keep_the_rules(seeds: range) -> None:
    assert not {seed: found for seed in seeds if (found := run(seed)[0])}


@pytest.mark.parametrize("first", USUAL)
def test_the_rules_hold(first: int) -> None:
    _keep_the_rules(range(first, first + USUAL.step))


@pytest.mark.slow
@pytest.mark.parametrize("first", NIGHTLY)
def test_the_rules_hold_at_night(first: int) -> None:
    _keep_the_rules(range(first, first + NIGHTLY.step))


def test_a_seed_is_the_same_world_each_time() -> None:
    assert run(7) == run(7)

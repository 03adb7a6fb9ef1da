"""Each mutant of the protocol is found by its seed, which the protocol as it is passes."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.broken.replace(" ", "-"))
def test_its_seed_finds_it(mutant: Mutant) -> None:
    assert mutant.is_found(mutant.seed)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 20
    assert len({(one.where, one.new) for one in MUTANTS}) == len(MUTANTS)

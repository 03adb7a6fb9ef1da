from __future__ import annotations

import sys

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import run


def of_one(seed: int) -> int:
    problems, log = run(seed)
    print("\n".join([*log, *problems]))
    return len(problems)


def of_many(first: int, last: int) -> int:
    bad = 0
    for seed in range(first, last):
        if problems := run(seed)[0]:
            bad += 1
            print(seed, *problems[:2], sep=" | ", flush=True)
    return bad


def of_mutants(seeds: int) -> int:
    """The first seed that finds each mutant."""
    missed = 0
    for mutant in MUTANTS:
        found = next((seed for seed in range(seeds) if mutant.is_found(seed)), None)
        missed += found is None
        print(f"{found if found is not None else '-':>5}  {mutant.broken}", flush=True)
    return missed


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0] == "--mutants":
        raise SystemExit(of_mutants(int(given[1])))
    raise SystemExit((of_one if len(given) == 1 else of_many)(*map(int, given)))

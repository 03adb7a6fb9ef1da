"""The ladder of an onboarding: what runs after what, and what may be claimed."""

from __future__ import annotations

from copy import copy
from functools import partial

import pytest

from flows.onboard.goals import GOALS, STUCK, Tier, Verdict, climb, reached


def tier(goal: str, verdict: Verdict = Verdict.PASS) -> Tier:
    return Tier(goal, verdict, "because", ("evidence/one.json",), {"p50": 1.0})


def ladder(**verdicts: Verdict) -> tuple[Tier, ...]:
    return tuple(tier(goal, verdicts.get(goal, Verdict.PASS)) for goal in GOALS)


def climbed(**verdicts: Verdict) -> tuple[Tier, ...]:
    tiers = ladder(**verdicts)
    return climb((one.goal, partial(copy, one)) for one in tiers)


def test_nothing_runs_above_a_failure() -> None:
    found = climbed(L1=Verdict.FAIL)
    assert [one.verdict for one in found] == [
        Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.NOT_RUN,
    ]  # fmt: skip
    assert found[3].why == "L1 failed"
    assert reached(found) == "L0"


@pytest.mark.parametrize("verdict", sorted(STUCK - {Verdict.FAIL}))
def test_a_blocked_tier_does_not_stop_the_climb(verdict: Verdict) -> None:
    found = climbed(L1=verdict)
    assert [one.verdict for one in found][2:] == [Verdict.PASS, Verdict.PASS]
    assert reached(found) == "L3"


def test_no_tier_passed() -> None:
    assert reached(climbed(L0=Verdict.FAIL)) == ""

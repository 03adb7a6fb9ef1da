"""The goals of an onboarding, lowest first, and the verdicts that each can end with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

GOALS: Mapping[str, str] = {
    "L0": "builds for every target, and the packages are sound",
    "L1": "runs on a device: its latency",
    "L2": "computes what the source model computes",
    "L3": "does its task: a metric on a dataset",
}


class Verdict(StrEnum):
    """How a tier ended; there are no others."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    TOOL_BLOCKED = "blocked by a tool"
    """modelmill or a tool lacks something; the error is quoted."""
    HOST_BLOCKED = "blocked by this machine"
    """Its hardware, packages, network or disk."""
    TIMED_OUT = "timed out"
    NOT_RUN = "not run"


STUCK = {Verdict.FAIL, Verdict.TOOL_BLOCKED, Verdict.HOST_BLOCKED, Verdict.TIMED_OUT}
"""What got in the way of a model, and is said there."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One of the four things that an onboarding shows."""

    goal: str
    verdict: Verdict
    why: str
    evidence: tuple[str, ...] = ()
    """Files of the folder that show it."""
    numbers: Mapping[str, Any] = field(default_factory=dict)


Step = Callable[[], Tier]


def climb(steps: Iterable[tuple[str, Step]]) -> tuple[Tier, ...]:
    """Run the tiers in order; a tier that fails keeps those above it from being run."""
    found: list[Tier] = []
    for goal, step in steps:
        failed = next((one for one in found if one.verdict is Verdict.FAIL), None)
        if failed:
            found.append(Tier(goal, Verdict.NOT_RUN, f"{failed.goal} failed"))
        else:
            found.append(step())
    return tuple(found)


def reached(tiers: Sequence[Tier]) -> str:
    """The highest tier that passed; empty: none."""
    passed = [one.goal for one in tiers if one.verdict is Verdict.PASS]
    return passed[-1] if passed else ""

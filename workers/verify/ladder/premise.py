"""What a rung needs before it can be climbed: one that could not be run has not failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.verify.ladder.seen import Ran, Seen

Json = Mapping[str, Any]
Verdict = tuple[bool | None, list[str], dict[str, Any]]
"""Passed (None: could not be run), what is wrong or noteworthy, evidence."""
RAN_WRONG = ("open", "run", "crash")
"""Where a runtime or a model is at fault."""
MISFIT = "feed"
"""Where the input values are not the model's: its ports differ from the export's."""


def not_run(why: str, evidence: dict[str, Any] | None = None) -> Verdict:
    """A rung that a lower one, or something missing, keeps from being judged."""
    return None, [f"not run: because {why}"], evidence or {}


def ran_well(ran: Ran) -> bool:
    """Whether every model of the package ran there."""
    return bool(ran.models) and not ran.problem(*RAN_WRONG, MISFIT)


def over(
    seen: Seen, problems: list[str], evidence: dict[str, Any], unseen: Sequence[str] = ()
) -> Verdict:
    """A rung over all runs: what is wrong decides, then whether everything could be looked at.

    `unseen`: why something could not be judged although the model ran.
    """
    if problems:
        return False, problems, evidence
    broken = [ran for ran in seen.runs if not ran_well(ran)]
    if not seen.runs or len(broken) == len(seen.runs):
        misfits = [text for ran in broken for text in ran.problem(MISFIT)]
        wrong = [text for ran in broken for text in ran.problem(*RAN_WRONG)]
        why = f"no input values fit: {misfits[0]}" if misfits and not wrong else "loads failed"
        return not_run(why, evidence)
    if unseen:
        return not_run(unseen[0], evidence)
    return (
        True,
        [f"not run on {ran.runtime.name}: because loads failed there" for ran in broken],
        evidence,
    )

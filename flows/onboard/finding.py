"""The draft of a finding: what an onboarding has seen of a family, for people to judge."""

from __future__ import annotations

from datetime import date

from flows.onboard.effort import Effort, Probe
from flows.onboard.goals import BLOCKED, Tier, Verdict
from matrix.slugs import slug
from matrix.toml import as_toml


def draft(model: str, task: str, probe: Probe, tiers: tuple[Tier, ...], today: date) -> str:
    """A finding as TOML; empty: the family is known, and nothing failed or was blocked."""
    odd = [one for one in tiers if one.verdict is Verdict.FAIL or one.verdict in BLOCKED]
    if probe.effort is Effort.ENTRY and not odd:
        return ""
    told = "; ".join(f"{one.goal} {one.verdict}: {one.why}" for one in tiers)
    title = f"{model} is onboarded for {task}"
    if odd:
        title = f"{model} stops at {odd[0].goal} for {task}: {odd[0].verdict}"
    table = {
        "id": slug(f"{probe.architecture}-{model}-{task}"),
        "kind": "family",
        "title": title,
        "observation": told,
        "status": "draft",
        "confidence": "low",
        "falsified_by": "an onboarding of the same model that ends otherwise",
        "updated": today.isoformat(),
        "scope": {"architectures": [probe.architecture], "models": [model]},
    }
    return as_toml("finding", table)

"""Names that other systems show for our things."""

from __future__ import annotations

import re

PARENT_FLOW = "modelmill-fleet"
"""The flow that leads a sweep of a fleet."""


def artifact_key(stamp: str, kind: str) -> str:
    """A Prefect artifact key: lower case, digits and dashes only."""
    slug = re.sub(r"[^0-9a-z]+", "-", stamp.lower()).strip("-")
    return f"modelmill-{slug}-{kind}"

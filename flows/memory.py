"""What a sweep records of its settings, so that a resume from anywhere means the same sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.options import OPTIONS, SELECTION
from flows.settings import Settings
from matrix.errors import UsageError

OF_THE_SWEEP = (
    "package",
    "engine",
    "skip_bad_entries",
    "precision",
    "opset",
    "self_contained",
    "if_changed",
    "no_publish",
    "verify",
    "publish_unverified",
    "timeout",
    "publish_timeout",
    "allow_remote_code",
    "allow_pickle",
    "needs",
)
"""What it does with what is selected. Not: places and sizes of a machine (home, jobs, budgets)."""

_KEPT = (*OF_THE_SWEEP, "targets_file", *SELECTION)


def remember(settings: Settings, catalog: str) -> dict[str, Any]:
    """The settings that make the sweep what it is."""
    values = {name: settings[name] for name in _KEPT if settings[name] is not None}
    if settings["targets_file"]:
        values["targets_file"] = str(settings.path("targets_file").absolute())
    return {**values, "catalog": catalog}


def recall(settings: Settings, stamp: str, recorded: Mapping[str, Any]) -> tuple[Settings, str]:
    """The settings of a recorded sweep under what flags and variables say now; its catalog."""
    catalog = recorded.get("catalog")
    if not isinstance(catalog, str):
        raise UsageError(
            f"sweep {stamp} has no catalog on record", hint="start it with modelmill sweep"
        )
    known = {name: value for name, value in recorded.items() if name in OPTIONS}
    return settings.replaced({**known, "stamp": stamp}, f"sweep {stamp}"), catalog

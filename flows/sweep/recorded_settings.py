"""The settings that a sweep records, so that a resume from anywhere continues the same sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.cli.settings import OPTIONS, RECORDED, Settings
from state.errors import StateError


def remember(settings: Settings, catalog: str) -> dict[str, Any]:
    """The settings of the sweep as it records them."""
    values = settings.chosen(RECORDED)
    if settings.targets_file:
        values["targets_file"] = str(settings.path(settings.targets_file).absolute())
    return {**values, "catalog": catalog}


def typed(recorded: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings of a record, and the names of those whose values cannot be read."""
    values: dict[str, Any] = {}
    wrong = []
    for name, option in OPTIONS.items():
        if name in recorded:
            try:
                values[name] = option.recorded(recorded[name])
            except ValueError:
                wrong.append(name)
    return values, wrong


def recall(settings: Settings, stamp: str, recorded: Mapping[str, Any]) -> tuple[Settings, str]:
    """The settings of a recorded sweep, where flags and variables of now win, and its catalog."""
    known, wrong = typed(recorded)
    catalog = recorded.get("catalog")
    if not isinstance(catalog, str):
        wrong.append("catalog")
    if wrong:
        raise StateError(
            f"the settings of sweep {stamp} are damaged in the state: {', '.join(wrong)}",
            hint=f"modelmill sweep CATALOG --stamp {stamp} with its flags records them again",
        )
    return settings.replaced({**known, "stamp": stamp}, f"sweep {stamp}"), str(catalog)

"""The export of a model as a cell of its own kind.

The export is published once per model and every cell's manifest names it by digest. It is
planned, seeded, published, recorded and resumed exactly like a cell, under `MODEL:TASK@export`.
"""

from __future__ import annotations

from matrix.model import PlannedModel

EXPORT = "export"


def export_id(model: PlannedModel) -> str:
    """The id under which the state keeps it."""
    return f"{model.name}@{EXPORT}"


def is_export(cell_id: str) -> bool:
    """Whether an id is an export's; no target can have that label."""
    return cell_id.rpartition("@")[2] == EXPORT

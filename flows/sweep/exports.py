"""The export of a model as a cell of its own kind.

The export is published once per model (and opset) and every cell's manifest names it by digest.
It is planned, seeded, published, recorded and resumed exactly like a cell, under the id
`MODEL:TASK@export`.
"""

from __future__ import annotations

from matrix.model import EXPORT


def is_export(cell_id: str) -> bool:
    """Whether an id is an export's; no target can have that label."""
    return cell_id.rpartition("@")[2].partition(":")[0] == EXPORT

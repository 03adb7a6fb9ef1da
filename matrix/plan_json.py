"""A plan as the JSON that `plan --json` prints."""

from __future__ import annotations

from typing import Any

from matrix.codec import to_json
from matrix.model import Cell, Plan


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Everything a plan says, cell by cell."""
    return {
        "stamp": plan.stamp,
        "engine": plan.engine,
        "self_contained": plan.self_contained,
        "index": {"package": plan.index_package, "version": plan.index_version},
        "exports": [
            {
                "id": export.id,
                "model": model.model.id,
                "task": model.model.task,
                "package": export.package,
                "version": export.version,
            }
            for model in plan.models
            for export in model.exports
        ],
        "cells": [cell_to_json(cell) for cell in plan.cells()],
        "notices": list(plan.notices),
    }


def cell_to_json(cell: Cell) -> dict[str, Any]:
    """One cell with its effective policy."""
    policy = to_json(cell.policy)
    return {
        "id": cell.id,
        "model": cell.model.id,
        "task": cell.model.task,
        "model_type": cell.model.model_type,
        "group": cell.model.group,
        "priority": cell.model.priority,
        "target": cell.target.label,
        "ep": cell.target.ep,
        "device": cell.target.device,
        "provider": cell.target.provider,
        "profile": cell.profile.label if cell.profile else None,
        "precision_default": policy.pop("default"),
        "precision_asked": policy.pop("asked"),
        **policy,
        "package": cell.package,
        "version": cell.version,
        "timeout": cell.timeout,
        "publish_timeout": cell.publish_timeout,
        "skip": cell.skip,
        "needs": list(cell.needs),
    }

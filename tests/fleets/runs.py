"""A sweep of a fleet that has begun, in a state of its own."""

from __future__ import annotations

from pathlib import Path

from feed.interface import Published
from flows.fleet.run import FleetRun
from flows.plan.estimates import estimate
from flows.sweep.lifecycle import cell_rows, model_seconds
from state.state import State, open_state
from tests.sweeps.in_memory import make_plan, small_model


def begun(root: Path) -> tuple[State, FleetRun]:
    state = open_state(root / "state.db")
    plan = make_plan(small_model("a"), small_model("b"))
    info = state.begin(
        "s", "dir:x", cell_rows(plan, {}), model_seconds(plan, estimate(plan, state)), {}, {}
    )
    values = {"engine": "fake", "precision": ("fp32",), "allow_remote_code": True, "tries": 2}
    newest = {"a": Published("p", "0.0.0-1", f"tree=sha256:{'f' * 64} text")}
    return state, FleetRun(info.id, plan, values, "dir:/feed", newest)

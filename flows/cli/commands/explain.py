"""`modelmill explain`: why each stage of a cell ran, or would run, or is reused."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.settings import PLACES
from flows.sweep.recorded import recall, typed
from flows.sweep.workspace import Workspace, find_sweep
from matrix.cellid import parse
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument("cell", help="MODEL:TASK@TARGET[:PRECISION][+PROFILE]")
    parser.add_argument("--stamp", dest="batch", help="the batch; default: the one begun last")
    parser.add_argument("--json", action="store_true", help="for machines")
    names = ("engine", "opset", "allow_remote_code", "allow_pickle", *PLACES)
    add_settings(parser, names)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from datetime import date

    from flows.sweep.local import open_builder
    from flows.sweep.planning import plan_of
    from flows.sweep.recorded import Compiling
    from workers.build.explain import explain

    cell_id = str(parse(arguments.cell))
    settings = settings_of(arguments)
    with Workspace(settings).read_state() as state:
        info = find_sweep(state, arguments.batch)
        asked = Compiling.of(state, info.id)
        plan = asked.plan if asked.cell(cell_id) else None
        if plan is not None:
            values = {**typed(info.settings)[0], "emulated": asked.emulated}
            recalled = settings.replaced(values, f"sweep {info.stamp}")
        else:
            recalled, catalog = recall(settings, info.stamp, info.settings)
        history = [one for one in state.stage_runs(info.id) if one.cell == cell_id]
    if plan is None:
        plan = plan_of(recalled.narrowed(cell_id), catalog, date.today())  # noqa: DTZ011 - the user's date
    cell = asked.cell(cell_id) or next(plan.cells())
    with open_builder(plan, recalled) as builder:
        reasons = explain(builder, cell)
    if arguments.json:
        document = {"cell": cell_id, "stages": [asdict(one) for one in reasons]}
        document["runs"] = [asdict(one) for one in history]
        print(json.dumps(document, indent=1))
        return Exit.OK
    print(f"{cell_id} in sweep {info.stamp}")
    for reason in reasons:
        name = f"{reason.stage} {reason.component}".strip()
        print(f"  {name}: {'reused' if reason.reused else 'would run'}  key {reason.key[:16]}")
        for line in reason.lines:
            print(f"    {line}")
    for one in history:
        name = f"{one.stage} {one.component}".strip()
        what = "was reused" if one.reused else f"ran for {one.seconds:.1f}s"
        print(f"  in this sweep {name} {what}")
    return Exit.OK

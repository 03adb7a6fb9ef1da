"""`modelmill explain`: why each stage of a cell ran, or would run, or is reused."""

from __future__ import annotations

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.console import print_result
from flows.settings.settings import PLACES


def add(parser: Parser) -> None:
    parser.add_argument("cell", help="MODEL:TASK@TARGET[:PRECISION][+PROFILE]")
    parser.add_argument("--stamp", dest="batch", help="the batch; default: the one begun last")
    names = ("engine", "opset", "allow_remote_code", "allow_pickle", *PLACES)
    add_settings(parser, names, as_json=True)


def run(arguments: Arguments) -> None:
    from flows.observe.evidence import notices_of
    from flows.output.quantity import plain_text
    from flows.packages.builder import open_builder
    from flows.plan.planning import planned_cell
    from workers.build.keys import explain, last_keys

    settings = arguments.settings
    with arguments.work.read_state() as state:
        planned = planned_cell(state, settings, arguments.cell, arguments.batch)
        cell_id, info = planned.cell.id, planned.info
        history = [one for one in state.stage_runs(info.id) if one.cell == cell_id]
        outcome = state.outcome(info.id, cell_id)
    notices = notices_of(outcome.evidence) if outcome else []
    with open_builder(planned.plan, planned.settings) as builder:
        reasons = explain(builder.keys(planned.cell), last_keys(builder.store.notes, cell_id))
    lines = [f"{cell_id} in sweep {info.stamp}"]
    for reason in reasons:
        name = f"{reason.stage} {reason.component}".strip()
        what = "reused" if reason.reused else "would run"
        lines.append(f"  {name}: {what}  key {reason.key[:16]}")
        lines += [f"    {line}" for line in reason.lines]
    for one in history:
        name = f"{one.stage} {one.component}".strip()
        what = "was reused" if one.reused else f"ran for {one.seconds:.1f}s"
        lines.append(f"  in this sweep {name} {what}")
    lines += [f"  {plain_text(notice)}" for notice in notices]
    found = {"cell": cell_id, "stages": reasons, "runs": history, "notices": notices}
    print_result(arguments, found, lines)

"""`modelmill plan`: print the matrix and the effective settings, and change nothing."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import CATALOG, Arguments, Parser, add_settings
from flows.features import feature
from flows.output.console import print_json
from flows.output.quantity import counted, parse_duration, parse_size, show_duration, show_size
from flows.output.table import grid_lines, render
from flows.settings.settings import OF_A_SWEEP, OPTIONS, PLACES, SELECTION, Settings
from flows.settings.workspace import Workspace
from matrix.model import Plan

if TYPE_CHECKING:
    from flows.plan.estimates import Estimates


def add(parser: Parser) -> None:
    parser.add_argument("catalog", help=CATALOG)
    add_settings(parser, (*SELECTION, *OF_A_SWEEP, *PLACES), as_json=True)


def run(arguments: Arguments) -> None:
    from flows.plan.planning import plan_of
    from flows.plan.samples import outlook
    from flows.settings.engines import slot_count

    settings = arguments.settings
    # The stamp's default is the user's date, not Greenwich's.
    plan = plan_of(settings, arguments.catalog, date.today())  # noqa: DTZ011
    known, slots = _estimates(arguments.work, plan), slot_count(settings)
    stale = []
    if settings.champions:
        stale = feature("stale champions")(settings, plan)
    if arguments.json:
        from matrix.plan_json import plan_to_json

        effective = {
            name: {"value": value, "origin": settings.origin(name)}
            for name, value in settings.values().items()
        }
        samples = {one.name: asdict(outlook(one, plan.engine)) for one in plan.models}
        document = {**plan_to_json(plan), "samples": samples, "settings": effective}
        if known is not None:
            document["estimate"] = _estimate_json(known, slots)
        if settings.champions:
            document["stale_champions"] = stale
        print_json(document)
    else:
        print_plan(plan, settings)
        print("\n" + "\n".join(_sample_lines(plan)) + "\n")
        _note_engine(settings)
        for line in stale:
            print(f"note: {line}")
        if known is not None:
            print("\n" + "\n".join(_estimate_lines(known, slots)))
            if settings.if_changed:
                print("  with --if-changed, unchanged cells take almost nothing of that")


def _note_engine(settings: Settings) -> None:
    """A plan is also made where nothing is built, so a missing engine is not an error."""
    from flows.settings.engines import check_engine
    from workers.errors import EngineNotFound

    try:
        check_engine(settings)
    except EngineNotFound as error:
        print(f"note: a sweep on this machine would be refused: {error}")


def print_plan(plan: Plan, settings: Settings) -> None:
    """The matrix, then the settings that led to it."""
    from flows.plan.planning import notice_lines, size_of

    rows = [
        (cell.id, cell.policy.precision, cell.policy.opset, cell.package, cell.version)
        if not cell.skip
        else (cell.id, "skipped", "-", cell.skip, "")
        for cell in plan.cells()
    ]
    table = render(("cell", "precision", "opset", "package", "version"), rows)
    print(table, *notice_lines(plan.notices), sep="\n")
    skipped = sum(cell.skip is not None for cell in plan.cells())
    marks = {cell.id: "skipped" if cell.skip else cell.policy.precision for cell in plan.cells()}
    if grid := list(grid_lines(marks)):
        print("\n".join(["", *grid]))
    index = f"index {plan.index_package} {plan.index_version}"
    print(f"\n{size_of(plan)} ({skipped} skipped), {index}\n")
    shown = [
        (name, _show(name, value), settings.origin(name))
        for name, value in settings.values().items()
        if settings.origin(name) != "default" or value not in (None, (), False)
    ]
    print(render(("setting", "value", "from"), shown))


def _sample_lines(plan: Plan) -> list[str]:
    """Which samples every model gets, and how many for each part."""
    from flows.plan.samples import outlook

    rows = []
    for model in plan.models:
        found = outlook(model, plan.engine)
        rows.append(
            (model.name, found.kind, "/".join(map(str, found.parts.values())), found.origin)
        )
    return [render(("model", "samples", "/".join(found.parts), "from"), rows)] if rows else []


def _show(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, int | float):
        parse = OPTIONS[name].parse
        if parse is parse_duration:
            return show_duration(value)
        if parse is parse_size:
            return show_size(value)
    return str(value)


def _estimates(work: Workspace, plan: Plan) -> Estimates | None:
    """Estimates from the history in the state, if there is one."""
    if not work.has_state():
        return None
    from flows.plan.estimates import estimate

    with work.read_state() as state:
        found = estimate(plan, state)
    return found if found.models else None


def _estimate_json(known: Estimates, slots: int) -> dict[str, Any]:
    return {
        "slots": slots,
        "seconds": known.wall(slots),
        "disk": known.disk(),
        "memory": known.memory(slots),
        "unknown_models": known.unknown,
        "models": {name: asdict(cost) for name, cost in known.models.items()},
    }


def _estimate_lines(known: Estimates, slots: int) -> list[str]:
    lines = [
        f"if everything is built again with {counted(slots, 'slot')}, about:",
        f"  time    {show_duration(known.wall(slots))}",
        f"  disk    {show_size(known.disk())}",
        f"  memory  {show_size(known.memory(slots))}",
    ]
    longest = sorted(known.models.items(), key=lambda item: -item[1].seconds)[:3]
    for name, cost in longest:
        lines.append(f"  longest {name}: {show_duration(cost.seconds)}, from {cost.basis}")
    if known.unknown:
        lines.append(f"  without {counted(known.unknown, 'model')} of which nothing is known")
    return lines

"""`modelmill coverage`: which entries of a catalog build, and what the others need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flows.cli.arguments import CATALOG, Arguments, Parser, add_settings
from flows.onboard.coverage import BUILT, Row, built, by_verdict, judged, row_json, totals
from flows.output.console import print_result
from flows.output.table import render
from machine.installation import incomplete, install
from matrix.coverage import VERIFIED, Verdict, measured, proven


def add(parser: Parser) -> None:
    parser.add_argument("catalog", help=CATALOG)
    add_settings(parser, ("engine", "home", "targets_file"), as_json=True)


def run(arguments: Arguments) -> None:
    from matrix.abilities import engines
    from matrix.catalog import load_catalog
    from workers.host.engines import find_engine

    settings = arguments.settings
    find_engine(settings.engine)
    targets = arguments.work.targets()
    catalog = load_catalog(arguments.catalog, base=settings.cwd, targets=targets, skip_bad=True)
    names = dict.fromkeys((settings.engine, *engines(), *measured()))
    found = {name: judged(catalog.models, name) for name in names}
    rows, sums = found[settings.engine], {name: by_verdict(one) for name, one in found.items()}
    document = {
        "catalog": catalog.name,
        "engine": settings.engine,
        "engines": sums,
        "totals": totals(rows),
        "entries": [row_json(row, settings.engine) for row in rows],
        "notices": list(catalog.notices),
    }
    notices = (f"note: {notice}" for notice in catalog.notices)
    tiny = _tiny(rows, settings.engine)
    lines = [*_lines(rows, totals(rows), sums), *_missing(rows), *tiny, *notices]
    print_result(arguments, document, lines)


def _lines(
    rows: Sequence[Row],
    sums: Mapping[str, Mapping[str, Mapping[str, int]]],
    engines: Mapping[str, Mapping[str, int]],
) -> Iterator[str]:
    rest = [row for row in rows if row.coverage.verdict is not Verdict.BUILDS]
    if rest:
        shown = [
            (row.model.name, row.coverage.architecture, row.coverage.verdict, _told(row))
            for row in sorted(rest, key=lambda row: row.coverage.verdict not in BUILT)
        ]
        yield render(("entry", "architecture", "verdict", "why"), shown) + "\n"
    for what, groups in sums.items():
        verdicts = [
            one.value for one in Verdict if any(one.value in row for row in groups.values())
        ]
        table = [
            (name, sum(counts.values()), *(counts.get(verdict, 0) for verdict in verdicts))
            for name, counts in groups.items()
        ]
        yield render((what, "entries", *verdicts), table) + "\n"
    for name, counts in engines.items():
        spelled = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        yield f"{name}: {built(counts)} of {len(rows)} entries build ({spelled})"


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """How to install all extras that entries need and this installation lacks."""
    if extras := incomplete({row.coverage.extra for row in rows if row.coverage.extra}):
        yield f"to install what entries need: {install(*extras)}"


def _tiny(rows: Sequence[Row], engine: str) -> Iterator[str]:
    """How many entries have a tiny model of their kind in the zoo that is verified."""
    found = [proven(row.coverage.architecture, row.coverage.task, engine) for row in rows]
    for target in sorted({target for one in found for target in one}):
        told = [one[target] for one in found if target in one]
        share = f"{told.count(VERIFIED)} of {len(told)}"
        yield f"{engine}: the tiny models of {share} entries are verified for {target}"


def _told(row: Row) -> str:
    found = row.coverage
    if found.verdict is Verdict.BUILDS_AS:
        return f"{found.task}: {found.why}"
    near = f"nearest that builds: {found.nearest}" if found.nearest else ""
    return "; ".join(filter(None, (found.why, found.hint, near)))

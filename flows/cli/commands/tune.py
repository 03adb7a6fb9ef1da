"""`modelmill tune --replay`: grade sessions that were measured elsewhere."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser
from matrix.errors import Exit

if TYPE_CHECKING:
    from flows.tune.replay import Graded


def add(parser: Parser) -> None:
    parser.add_argument(
        "--replay",
        nargs="+",
        type=Path,
        required=True,
        metavar="FILE",
        help="recordings of other sweeps: results.json, results.tsv, or folders with such files",
    )
    parser.add_argument(
        "--min-gain",
        type=_percent,
        default=5.0,
        metavar="PERCENT",
        help="a smaller change of the latency is no difference; default 5%%",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=_run)


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 < value < 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not between 0% and 100%")
    return value


def _run(arguments: argparse.Namespace) -> Exit:
    from flows.tune.recorded import read_recordings
    from flows.tune.replay import replay

    rows = [
        row
        for recording in read_recordings(arguments.replay)
        for row in replay(recording, arguments.min_gain)
    ]
    if arguments.json:
        from matrix.codec import to_json

        print(json.dumps(to_json(rows), indent=1))
        return Exit.OK
    for model in dict.fromkeys(row.model for row in rows):
        _print(model, [row for row in rows if row.model == model])
    wrong = sum(bool(row.agreement) for row in rows)
    claims = f"{wrong} claim{'s' if wrong != 1 else ''} that the data do not support"
    print(f"{len(rows)} trial{'s' if len(rows) != 1 else ''}; {claims}")
    return Exit.OK


def _print(model: str, rows: list[Graded]) -> None:
    from flows.cli.table import render

    print(model)
    head = ("trial", "gain", "claimed", "its rule", "ours", "why")
    print(render(head, [_cells(row) for row in rows]))
    for row in rows:
        if row.agreement:
            print(f"  {row.trial}: {row.agreement}")
    print()


def _cells(row: Graded) -> tuple[str, str, str, str, str, str]:
    gained = "" if row.gain is None else f"{row.gain:+.1f} %"
    return row.trial, gained, row.claim, row.rule, str(row.verdict), row.why

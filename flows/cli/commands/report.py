"""`modelmill report`: a sweep as one HTML file that opens from disk."""

from __future__ import annotations

from pathlib import Path

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.activity import waiting_for
from flows.settings.workspace import find_sweep


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("batch", nargs="?", metavar="STAMP", help="the batch; default: the one begun last")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write; default: report-STAMP.html",
    )
    add(
        "--against",
        metavar="STAMP",
        help="compare with this batch; default: the one before of the same catalog",
    )
    add_settings(parser, ("home", "state", "summary"))


def run(arguments: Arguments) -> None:
    from flows.observe.summaries import write_summaries
    from flows.observe.summaries.document import summary_document
    from flows.report.collect import collect
    from flows.report.page import write, write_traces

    settings = arguments.settings
    with arguments.work.read_state() as state:
        info = find_sweep(state, arguments.batch)
        other = find_sweep(state, arguments.against) if arguments.against else None
        waiting_for(f"reading sweep {info.stamp}")
        told = summary_document(state, info, other)
        dest = arguments.output or Path(f"report-{info.stamp}.html")
        pages = write_traces(state, info, settings.cwd / dest)
        write(collect(state, told, pages, arguments.work), settings.cwd / dest)
        if settings.summary:
            write_summaries(settings.path(settings.summary), told)
    print(dest)

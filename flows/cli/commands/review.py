"""`modelmill review`: whether the proof of an onboarding holds on this machine."""

from __future__ import annotations

from pathlib import Path

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.console import print_result, tell
from flows.settings.settings import PLACES
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, help="the folder that an onboarding wrote")
    names = ("allow_remote_code", "allow_pickle", "runtimes", "timeout", "memory")
    add_settings(parser, (*names, *PLACES), as_json=True)
    parser.set_defaults(begins="preparing the review")


def run(arguments: Arguments) -> Exit:
    from datetime import date

    from flows.onboard.review import Answer, Review
    from matrix.codec import to_json

    folder = arguments.settings.cwd / arguments.folder
    found = Review(folder, arguments.settings, tell).go(date.today())  # noqa: DTZ011 - the user's date
    lines = [f"{one.answer}: {one.text}" for one in found.objections]
    lines += [f"checked: {text}" for text in found.checked]
    lines += [f"{found.answer.name.replace('_', ' ')}: {arguments.folder}"]
    print_result(arguments, to_json(found), lines)
    return {
        Answer.APPROVE: Exit.OK,
        Answer.REQUEST_CHANGES: Exit.CELLS_FAILED,
        Answer.REJECT: Exit.REJECTED,
    }[found.answer]

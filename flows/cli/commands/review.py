"""`modelmill review`: whether the proof of an onboarding holds on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.settings import PLACES
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, help="the folder that an onboarding wrote")
    parser.add_argument("--json", action="store_true", help="for machines")
    names = ("allow_remote_code", "allow_pickle", "runtimes", "timeout", "memory")
    add_settings(parser, (*names, *PLACES))
    parser.set_defaults(run=run, begins="preparing the review")


def run(arguments: argparse.Namespace) -> Exit:
    from datetime import date

    from flows.onboard.review import Answer, Review
    from matrix.codec import to_json

    settings = settings_of(arguments)
    folder = settings.cwd / arguments.folder
    found = Review(folder, settings, _tell).go(date.today())  # noqa: DTZ011 - the user's date
    if arguments.json:
        print(json.dumps(to_json(found), indent=1))
    else:
        for one in found.objections:
            print(f"{one.answer}: {one.text}")
        for text in found.checked:
            print(f"checked: {text}")
        print(f"{found.answer.name.replace('_', ' ')}: {arguments.folder}")
    return {
        Answer.APPROVE: Exit.OK,
        Answer.REQUEST_CHANGES: Exit.CELLS_FAILED,
        Answer.REJECT: Exit.REJECTED,
    }[found.answer]


def _tell(text: str) -> None:
    print(f"modelmill: {text}", file=sys.stderr, flush=True)

"""The command line: parse, run one command, turn what happened into a line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn

from flows.arguments import Parser
from flows.commands import COMMANDS
from matrix.errors import Exit, MillError


class _Version(argparse.Action):
    """`--version`; the installed version is looked up only for who asks."""

    def __call__(self, *_args: object) -> NoReturn:
        from importlib.metadata import version

        print(f"modelmill {version('modelmill')}")
        raise SystemExit(Exit.OK)


def build_parser(*, whole: bool = True) -> Parser:
    """The command line; with `whole=False` a command is imported when it is parsed.

    Importing every command to run one costs more than most of them take.
    """
    parser = Parser(
        prog="modelmill",
        description="Build a catalog of models for every execution provider and device,"
        " and publish every cell once.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show program's version number and exit"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        command.fill_later(partial(_fill, name))
        if whole:
            command.fill()
    return parser


def _fill(name: str, parser: Parser) -> None:
    import_module(f"flows.commands.{name}").add(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `modelmill` command."""
    try:
        arguments = build_parser(whole=False).parse_args(argv)
        code: Exit = arguments.run(arguments)
        sys.stdout.flush()
    except MillError as error:
        print(f"modelmill: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("modelmill: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`modelmill plan | head`); nothing of ours is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return code


def entry() -> None:
    """The installed command. Once Prefect is loaded nothing is left to its exit handlers: they
    wait for a server that is gone by then, seven seconds for every event."""
    code = main()
    if "prefect" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    entry()

"""The command line: parse, run one command, turn what happened into a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from flows.arguments import Parser
from matrix.errors import Exit, MillError

COMMANDS = (
    "plan",
    "sweep",
    "resume",
    "retry",
    "status",
    "explain",
    "rebuild",
    "report",
    "diff",
    "feed",
    "store",
    "engine",
    "verify",
    "doctor",
    "worker",
    "deploy",
    "cancel",
)


def build_parser() -> Parser:
    """The whole command line; the docs check reads it too."""
    parser = Parser(
        prog="modelmill",
        description="Build a catalog of models for every execution provider and device,"
        " and publish every cell once.",
    )
    parser.add_argument("--version", action="version", version=f"modelmill {version('modelmill')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS:
        import_module(f"flows.commands.{name}").add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `modelmill` command."""
    try:
        arguments = build_parser().parse_args(argv)
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

"""The command line: parse, run one command, turn errors into a line and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from flows.cli.arguments import Arguments, Parser, sentence
from flows.output.activity import waiting_for
from flows.output.console import (
    PLACES,
    Detail,
    Output,
    OutputLost,
    choose_colour,
    paint,
    safe_output,
    tell,
)
from machine.shell import shell_word
from matrix.errors import Exit, MillError

GROUPS: Mapping[str, Mapping[str, str]] = {
    "build a catalog": {
        "plan": "print the matrix, the effective settings and an estimate",
        "coverage": "say which models of a catalog build, and what the others need",
        "sweep": "build, verify and publish every selected cell",
        "resume": "continue an interrupted sweep",
        "retry": "try failed cells of a sweep again",
        "cancel": "stop a sweep, local or on a fleet; a resume continues it",
    },
    "see what happened": {
        "status": "show the status of every cell, with next steps for failures",
        "report": "write a sweep as one HTML file",
        "ui": "open Prefect's interface on the sweeps of this machine",
        "diff": "show what differs between two sweeps, and why",
        "explain": "say why each stage of a cell ran or was reused",
    },
    "use packages": {
        "feed": "list a feed, pull packages, promote versions",
        "verify": "verify a package folder, a published version or a cell",
        "rebuild": "build a published package again and compare the bytes",
        "compile": "compile ahead of time for a device, so that models open at once",
    },
    "measure and tune": {
        "bench": "measure how fast models run here, and whether one is faster than another",
        "trace": "show where a model spends its time, operator by operator",
        "tune": "find the fastest build of a model on a device, or judge recorded sessions again",
        "knowledge": "show what is known about targets and models, with the evidence",
    },
    "take in a model": {
        "onboard": "turn a model into a catalog entry, with proof that it builds and runs right",
        "review": "check the proof of an onboarding on this machine",
    },
    "this machine": {
        "doctor": "say what works on this machine, and what to do about the rest",
        "engine": "list engines, and create the environments of those that need their own",
        "store": "show, trim or empty the local content store",
        "state": "remove old sweeps from the state",
        "completion": "make a shell complete commands and flags",
    },
    "a fleet": {
        "worker": "make this machine part of a fleet",
        "deploy": "set up a fleet on its Prefect server",
    },
}
"""The commands as the help shows them, each with its line."""
COMMANDS: Mapping[str, str] = {
    name: text for group in GROUPS.values() for name, text in group.items()
}
_EXAMPLES = """
examples:
  modelmill sweep demo                       build the catalog that comes with modelmill
  modelmill status --failed                  what failed in the newest sweep, and what to do
  modelmill feed pull --stamp S --dest out   download what a sweep has published

`modelmill COMMAND --help` shows the flags of a command. The documentation is in the folder
docs of the source: docs/tutorial.md is the place to begin.
"""


class _Root(Parser):
    """The command line itself, whose help groups the commands."""

    commands: argparse._SubParsersAction[Parser]

    def format_help(self) -> str:
        """All commands by what one wants to do."""
        formatter = self._get_formatter()
        formatter.add_usage("%(prog)s COMMAND [flags]", [], [])
        formatter.add_text(self.description)
        lines = {action.dest: action for action in self.commands._get_subactions()}
        for title, group in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([lines[name] for name in group])
            formatter.end_section()
        return formatter.format_help() + _EXAMPLES


class _Version(argparse.Action):
    """`--version`; looks the version up only when it is asked for."""

    def __call__(self, *_args: object) -> NoReturn:
        from importlib.metadata import version

        print(f"modelmill {version('modelmill')}")
        raise SystemExit(Exit.OK)


_LOOP = "Symlink loop from "
_NEXT_STEPS = {
    errno.EACCES: "check its permissions, or choose another place with --home",
    errno.EPERM: "check its permissions, or choose another place with --home",
    errno.EROFS: "choose a place that can be written with --home",
    errno.ENOSPC: "free space, or choose a place on another disk with --home",
    errno.EIO: "check the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "its links lead in a circle",
    errno.ENOTDIR: "a file is where a folder should be",
    errno.EISDIR: "a folder is where a file should be",
}
"""Errors of the operating system that a user can act on. Any other OSError is a bug of ours."""
if os.name == "nt":
    _NEXT_STEPS[errno.EINVAL] = "Windows allows no such name: choose another"
if hasattr(errno, "EDQUOT"):
    _NEXT_STEPS[errno.EDQUOT] = "free space: your quota on this disk is used up"


def build_parser(filled: Collection[str] = COMMANDS) -> Parser:
    """The command line; a command that is not in `filled` is imported when it is parsed.

    Importing every command to run one costs more than most of them take.
    """
    parser = _Root(
        prog="modelmill",
        description="Build a catalog of models for every execution provider and device,"
        " and publish every cell once.",
    )
    text = "show program's version number and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)
    parser.set_defaults(run=lambda _arguments: parser.print_help())
    parser.commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, text in COMMANDS.items():
        command = parser.commands.add_parser(name, help=text, description=sentence(text))
        command.fill_later(partial(_fill, name))
        if name in filled:
            command.fill()
    return parser


def _fill(name: str, parser: Parser) -> None:
    command = import_module(f"flows.cli.commands.{name}")
    if hasattr(command, "run"):  # the verbs of others each have a function of their own
        parser.set_defaults(run=command.run)
    command.add(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    with safe_output() as out:
        try:
            try:
                code = _run(argv, out)
            except (MillError, SystemExit, KeyboardInterrupt, OSError, RuntimeError) as error:
                code = _ended(error)
            out.flush()
        except OutputLost as lost:
            out.lost = lost
            code = Exit.OK
        if out.lost is not None and not out.lost.reader_left:
            reason = out.lost.cause.strerror or out.lost.cause
            _say(f"standard output cannot be written: {reason}")
            code = code or Exit.UNUSABLE
        sys.stderr.flush()
    return code


def _run(argv: Sequence[str] | None, out: Output) -> int:
    """Read the command line and run its command; returns its exit code."""
    arguments = Arguments()
    try:
        _read(argv, arguments, out)
        return int(arguments.run(arguments) or Exit.OK)
    except ModuleNotFoundError as error:
        from flows.cli.installation import BUILDING, not_installed

        builds = arguments.command in BUILDING and not vars(arguments).get("fleet")
        told = not_installed(error, arguments.settings, builds=builds)
        if told is None:
            raise
        raise told from None


def _read(argv: Sequence[str] | None, arguments: Arguments, out: Output) -> None:
    """Read the command line, and set the output up as it says."""
    choose_colour("auto", os.environ)
    waiting_for("starting")
    build_parser(filled=()).parse_args(argv, arguments)
    out.goes_on = arguments.goes_on
    out.detail = arguments.detail
    _complete_hints(arguments, out)
    choose_colour(arguments.color, os.environ)
    if out.detail is Detail.QUIET and out.activity is not None:
        out.activity.hide()
        out.activity = None
    talks = out.detail > Detail.QUIET and not arguments.json
    # A log begins at once where nothing moves meanwhile: imports take seconds on a busy machine.
    if arguments.begins and talks and out.activity is None:
        print(arguments.begins, flush=True)


def _ended(error: BaseException) -> int:
    """Say why a command ended; returns its exit code. Raises the error if it is a bug of ours."""
    if isinstance(error, SystemExit):  # --help and --version
        return int(error.code or 0)
    if isinstance(error, KeyboardInterrupt):
        tell("interrupted (run the same command again)")
        return Exit.INTERRUPTED
    if isinstance(error, MillError):
        _say(str(error))
        return error.exit_code
    if not isinstance(error, OSError | RuntimeError):
        raise error
    _say(_refused(error))
    return Exit.UNUSABLE


def _refused(error: OSError | RuntimeError) -> str:
    """What the system has refused, for people; raises the error if it is a bug of ours."""
    if isinstance(error, RuntimeError):  # what pathlib makes of ELOOP, until Python 3.13
        if not str(error).startswith(_LOOP):
            raise error
        return f"{str(error).removeprefix(_LOOP)}: {_NEXT_STEPS[errno.ELOOP]}"
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the current folder was removed (change to another one)"
    if error.errno not in _NEXT_STEPS:
        raise error
    step = _NEXT_STEPS[error.errno]
    if getattr(error, "winerror", None) in {32, 33}:
        step = "another program has it open: close that one"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror} ({step})"


def _complete_hints(arguments: Arguments, out: Output) -> None:
    """Let the commands in hints name the places that this one was given as flags, without those
    that hold a password."""
    from flows.output.masking import masked

    places = {}
    for name in {name for names in PLACES.values() for name in names}:
        value = str(getattr(arguments, name.replace("-", "_"), None) or "")
        if value and masked(value) == value:
            places[name] = f" --{name} {shell_word(value)}"
    for stream in (out, sys.stderr):
        # A JSON document is for programs, which know where they look.
        if isinstance(stream, Output) and not (stream is out and arguments.json):
            stream.places = places


def _say(text: str) -> None:
    print(f"{paint('error:', 'red', sys.stderr)} {text}", file=sys.stderr)


def complete(line: str) -> None:
    """Answer a shell that completes a command line; see `modelmill completion`."""
    import argcomplete

    parser = build_parser(filled=line.split())
    import_module("flows.cli.commands.completion").add_completers(parser)
    argcomplete.autocomplete(parser)


def entry() -> None:
    """The installed `modelmill` command."""
    # A scheduler or a service manager ends a command with SIGTERM: it ends as after a Ctrl-C, with
    # its own last words and exit code. What runs threads listens by itself (`flows.stop`).
    for name in ("SIGTERM", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    # Imports make many objects and no garbage; collections take a tenth of a short command.
    gc.set_threshold(50_000)
    if "_ARGCOMPLETE" in os.environ:
        complete(os.environ.get("COMP_LINE", ""))
    code = main()
    # Prefect's exit handlers wait seven seconds for every event to reach a server that is gone. And
    # if a Ctrl-C came while a module was imported that makes code from text, `python -m` would end
    # by the signal, whatever the code is.
    if "prefect" in sys.modules or code == Exit.INTERRUPTED:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    entry()

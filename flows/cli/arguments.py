"""From the table of settings to argparse flags, and from parsed flags to `Settings`."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flows.output.console import Choice, Detail, tell
from matrix.errors import Exit, UsageError
from matrix.nearest import hint

if TYPE_CHECKING:  # the help of modelmill itself shows no setting
    from flows.settings.options import Option
    from flows.settings.settings import Settings
    from flows.settings.workspace import Workspace

USUAL = frozenset((
    "bench", "compile", "demand", "engine", "feed", "home", "if_changed", "jobs", "key", "model",
    "no_publish", "only", "precision", "runtimes", "skip", "stamp", "state", "store", "summary",
    "target", "task", "verify",
))  # fmt: skip
"""The settings that `--help` shows; `--help-all` shows the others too."""
_MOST_IN_USAGE = 8
"""With more flags than these, the line of usage says only that there are some."""
_SHORT = {"feed": "-f", "jobs": "-j", "model": "-m", "stamp": "-s", "target": "-t"}
CATALOG = "a TOML or JSON file, or a packaged catalog (demo, contexts, winml, zoo)"
"""What a command takes as a catalog."""


class Arguments(argparse.Namespace):
    """A parsed command line, with what commands without these flags would get from them."""

    command = ""
    config: Path | None = None
    color: Choice = "auto"
    json = False
    detail = Detail.USUAL
    goes_on = False
    """Whether the command goes on when nobody can read its output any more."""
    begins = ""
    """What a log begins with; empty: nothing."""

    @cached_property
    def settings(self) -> Settings:
        """The effective settings; a misspelt variable is pointed out."""
        from flows.settings.resolution import misspelt, resolve
        from flows.settings.settings import OPTIONS

        flags = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in vars(self).items()
            if name in OPTIONS
        }
        for line in misspelt(os.environ):
            tell(line)
        return resolve(flags, os.environ, Path.cwd(), self.config)

    @property
    def work(self) -> Workspace:
        """The folders, feed and state that the settings name."""
        from flows.settings.workspace import Workspace

        return Workspace(self.settings)


Run = Callable[[Arguments], Exit | None]
"""A command; what returns nothing has done what was asked."""


class Parser(argparse.ArgumentParser):
    """argparse that raises our one-line error instead of printing a usage block."""

    _fill: Callable[[Parser], None] | None = None
    rare: list[argparse.Action]
    """Arguments that only `--help-all` shows."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rare = []

    def format_help(self) -> str:
        """The help without rare arguments, if there are any."""
        texts, usage = [(action, action.help) for action in self.rare], self.usage
        for action in self.rare:
            action.help = argparse.SUPPRESS
        if len(self._get_optional_actions()) > _MOST_IN_USAGE:
            shape = self._get_formatter()
            given = self._get_positional_actions()
            names = [shape._format_args(one, str(one.metavar or one.dest)) for one in given]
            self.usage = " ".join(["%(prog)s", "[flags]", *names])
        try:
            return super().format_help()
        finally:
            self.usage = usage
            for action, text in texts:
                action.help = text

    def fill_later(self, fill: Callable[[Parser], None]) -> None:
        """Add the arguments when the parser is first used."""
        self._fill = fill

    def fill(self) -> None:
        """Add the postponed arguments."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def error(self, message: str) -> NoReturn:
        """Bad usage."""
        raise UsageError(message, hint=f"see '{self.prog} --help'")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse with the postponed arguments. Unknown flags are refused here, where those of this
        parser can be suggested."""
        self.fill()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(one) for one in action.choices]
        name = action.metavar if isinstance(action.metavar, str) else action.dest
        what = "/".join(action.option_strings) or name.lower()
        near = hint(str(value), choices)
        if isinstance(action, argparse._SubParsersAction):
            near = f"{near}; see '{self.prog} --help'" if "mean" in near else near
            raise UsageError(f"there is no {what} '{value}' in {self.prog}", hint=near)
        raise UsageError(f"{what}: there is no '{value}'", hint=near)

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            raise UsageError(f"unexpected argument '{word}'", hint=f"see '{self.prog} --help'")
        flag = word.partition("=")[0]
        near = difflib.get_close_matches(flag, self._option_string_actions, n=3)
        meant = f"did you mean {' or '.join(near)}?" if near else f"see '{self.prog} --help'"
        places = {
            str(one.metavar or one.dest).lower() for one in self._actions if not one.option_strings
        }
        if flag[2:] in places:
            meant = f"without the flag: {self.prog} {flag[2:].upper()}"
        raise UsageError(f"{self.prog} has no flag {flag}", hint=meant)


class HelpAll(argparse.Action):
    """Print the help with the arguments that `--help` leaves out."""

    def __call__(self, parser: argparse.ArgumentParser, *_args: object) -> NoReturn:
        if isinstance(parser, Parser):
            parser.rare = []
        parser.print_help()
        parser.exit()


def add_settings(parser: Parser, names: Iterable[str], *, as_json: bool = False) -> None:
    """Give a command the flags of these settings. `as_json`: it can print JSON."""
    from flows.settings.settings import OPTIONS

    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name in names:
        option = OPTIONS[name]
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        flags = _add(groups[option.group], option)
        parser.rare += [] if name in USUAL else flags
    if parser.rare and "--help-all" not in parser._option_string_actions:
        text = "show all flags of this command, and exit"
        parser.add_argument("--help-all", action=HelpAll, nargs=0, help=text)
    if not any(action.dest == "config" for action in parser._actions):
        add, colours = parser.add_argument, ("auto", "always", "never")
        add("--config", type=Path, metavar="FILE", help="settings file; default modelmill.toml")
        text = "colours; auto: on a terminal, unless NO_COLOR is set"
        add("--color", choices=colours, default="auto", help=text)


def sentence(text: str) -> str:
    """The line of a command as its own help begins."""
    return f"{text[0].upper()}{text[1:]}."


def add_verbs(parser: Parser, *names: str) -> Callable[..., Parser]:
    """A function that adds verbs to a command, each with the flags of the settings `names`."""
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)

    def add(
        name: str, text: str, run: Run, settings: Iterable[str] = (), *, as_json: bool = True
    ) -> Parser:
        verb = verbs.add_parser(name, help=text, description=sentence(text))
        add_settings(verb, (*names, *settings), as_json=as_json)
        verb.set_defaults(run=run)
        return verb

    return add


def add_detail(parser: argparse.ArgumentParser) -> None:
    """Flags for how much a command prints of a running sweep."""
    group = parser.add_mutually_exclusive_group()
    add = partial(group.add_argument, dest="detail", action="store_const", default=Detail.USUAL)
    add("-q", "--quiet", const=Detail.QUIET, help="show only what failed, and the end")
    add("-v", "--verbose", const=Detail.VERBOSE, help="show every step of every cell")


def add_sweeping(parser: Parser, *names: str) -> None:
    """The flags of every command that works on a sweep, here or on a fleet, besides those of the
    settings `names`."""
    from flows.settings.settings import OF_A_SWEEP, PLACES

    parser.add_argument("--fleet", action="store_true", help="have the workers of a fleet do it")
    parser.add_argument("--pool", default="modelmill", help="name of the fleet; default modelmill")
    parser.add_argument("--json", action="store_true", help="events and summary as JSON lines")
    add_settings(parser, (*names, *(one for one in OF_A_SWEEP if one != "stamp"), *PLACES))
    add_detail(parser)
    parser.set_defaults(goes_on=True, begins="planning the sweep")


def _add(group: argparse._ArgumentGroup, option: Option) -> list[argparse.Action]:
    flag, text = option.flag, option.help.replace("%", "%%")
    add = partial(group.add_argument, dest=option.name, default=None)
    if option.name.startswith("no_"):
        # BooleanOptionalAction takes any flag that begins with "--no-" for a negation.
        opposite = flag.replace("--no-", "--", 1)
        return [
            add(flag, action="store_true", help=text),
            add(opposite, action="store_false", help=f"the opposite of {flag}"),
        ]
    if option.switch:
        return [add(flag, action=argparse.BooleanOptionalAction, help=text)]
    flags = [*filter(None, [_SHORT.get(option.name)]), flag]
    kind, shown = _reader(option), option.metavar
    if option.many:
        text += " (repeatable, or separated by commas)"
        return [add(*flags, type=kind, action="extend", metavar=shown, help=text)]
    return [add(*flags, type=kind, metavar=shown, help=text)]


def _reader(option: Option) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return option.read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def refuse(*cases: tuple[object, str, str]) -> None:
    """Raise `UsageError` for the first case that holds: what holds, the message, the hint."""
    for holds, message, advice in cases:
        if holds:
            raise UsageError(message, hint=advice)

"""From the table of settings to argparse flags, and from parsed flags to `Settings`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

from flows.options import OPTIONS, Option
from flows.settings import Settings, resolve
from matrix.errors import UsageError


class Parser(argparse.ArgumentParser):
    """argparse that raises our one-line error instead of printing a usage block."""

    _fill: Callable[[Parser], None] | None = None

    def fill_later(self, fill: Callable[[Parser], None]) -> None:
        """Let the arguments be added when this parser is used first."""
        self._fill = fill

    def fill(self) -> None:
        """Add them now."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse, with everything that is left to be added."""
        self.fill()
        return super().parse_known_args(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Bad usage."""
        raise UsageError(message, hint=f"see '{self.prog} --help'")


class Command(Protocol):
    """What every module in `flows.commands` offers."""

    def add(self, parser: Parser) -> None:
        """Add the command's arguments, and `set_defaults(run=...)`."""


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Give a command the flags of these settings."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name in names:
        option = OPTIONS[name]
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        _add(groups[option.group], option)
    if not any(action.dest == "config" for action in parser._actions):
        parser.add_argument(
            "--config", type=Path, metavar="FILE", help="settings file; default modelmill.toml"
        )


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.name.startswith("no_"):
        # BooleanOptionalAction takes any flag that begins with "--no-" for a negation.
        add = partial(group.add_argument, dest=option.name, default=None)
        add(option.flag, action="store_true", help=text)
        add(option.flag.replace("--no-", "--", 1), action="store_false", help=f"not {option.flag}")
        return
    if option.switch:
        group.add_argument(
            option.flag, dest=option.name, action=argparse.BooleanOptionalAction, help=text
        )
        return
    if option.many:
        text += " (repeat or separate with commas)"
    group.add_argument(
        option.flag,
        dest=option.name,
        type=_reader(option),
        action="extend" if option.many else "store",
        metavar=option.metavar or option.name.upper(),
        help=text,
    )


def _reader(option: Option) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return option.read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The effective settings of a parsed command line."""
    flags = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(arguments).items()
        if name in OPTIONS
    }
    return resolve(flags, os.environ, Path.cwd(), getattr(arguments, "config", None))

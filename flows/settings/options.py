"""How one setting is declared: its default, help, parser, flag and variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

from flows.output.quantity import parse_duration, parse_size
from matrix.codec import from_json
from matrix.errors import UsageError
from matrix.nearest import hint
from matrix.verification import RUNGS
from workers.runtimes.runtime import KINDS
from workers.verify.ladder.levels import Demand

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


class Scope(Enum):
    """What a setting belongs to, which decides where its value is recorded."""

    HERE = "this machine or command; recorded nowhere"
    PLAN = "a sweep, from its planning on; a resume reads it back"
    SWEEP = "a sweep; a resume reads it back, and a flag may change it for a fleet under way"
    RUN = "one run; on a fleet it goes with the order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting: `parse` turns the text of a flag or variable into a value or, of a list, into one
    of its items."""

    name: str
    type: Any
    default: Any
    help: str
    parse: Callable[[str], Any]
    metavar: str
    group: str
    scope: Scope

    @property
    def switch(self) -> bool:
        """Whether the flag takes no value."""
        return self.type is bool

    @property
    def many(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.default, tuple)

    @property
    def flag(self) -> str:
        """As typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """As exported."""
        return "MODELMILL_" + self.name.upper()

    def recorded(self, value: object) -> Any:
        """The value of a record; raises `ValueError` for one of another type."""
        return from_json(value, self.type)

    def read(self, text: str) -> Any:
        """The value of a flag or variable; commas outside braces separate the items of a list."""
        if not self.many:
            return self.parse(text)
        return tuple(self.parse(part.strip()) for part in _parts(text) if part.strip())

    def text(self, value: Any) -> str:
        """The text that `read` turns into this value."""
        if self.many:
            return ",".join(value)
        return str(value).lower() if self.switch else str(value)


def parse_number(text: str) -> int:
    """A number, or zero."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"'{text}' is not a whole number")
    return int(text)


def parse_count(text: str) -> int:
    """A number, at least one."""
    if number := parse_number(text):
        return number
    raise UsageError(f"'{text}' is not a whole number above zero")


def parse_truth(text: str) -> bool:
    """The value of a switch."""
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False, "": False}
    try:
        return known[text.strip().lower()]
    except KeyError:
        raise UsageError(f"'{text}' is neither true nor false") from None


def _one_of(what: str, names: Collection[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise UsageError(f"there is no {what} '{text}'", hint=hint(text, names))
        return text

    return parse


parse_level = _one_of("level of verification", RUNGS)
parse_runtime = _one_of("runtime", ("none", *(kind.name for kind in KINDS)))


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
"""At least two letters: `C:\\cache` is a folder."""


def parse_cache(text: str) -> str:
    """Where a cache is. A URL with credentials is refused without being repeated."""
    hint_text = "http://HOST:PORT, https://HOST, file:///FOLDER or a folder"
    found = _URL.fullmatch(text)
    if found is None:
        return text
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise UsageError("the URL of the cache cannot be read", hint=hint_text) from None
    if url.query or url.fragment or ("@" in text and url.scheme != "file"):
        variables = "MODELMILL_CACHE_USER and MODELMILL_CACHE_PASSWORD, or MODELMILL_CACHE_TOKEN"
        raise UsageError(
            "the URL of the cache holds more than a host and a path",
            hint=f"credentials go into {variables}",
        )
    local = url.scheme == "file" and url.netloc in {"", "localhost"} and url.path
    remote = url.scheme in {"http", "https"} and url.hostname and port != 0
    if not (local or remote) or not text.isprintable() or " " in text:
        raise UsageError(f"the cache '{text}' is not the URL of a cache", hint=hint_text)
    return text


def parse_demand(text: str) -> str:
    """What a view asks of a version."""
    view, found, wanted = text.partition("=")
    if not view or not found:
        raise UsageError(f"'{text}' is not VIEW=LEVEL", hint="for example release=parity@ep")
    Demand.parse(wanted)
    return text


Parse = Callable[[str], Any]
_PARSERS: Mapping[type, Parse] = {int: parse_count, float: parse_duration, bool: parse_truth}
"""How values of a type are read, unless a setting says otherwise."""
_METAVARS: Mapping[Parse, str] = {
    parse_count: "N",
    parse_number: "N",
    parse_size: "SIZE",
    parse_duration: "TIME",
}


def setting(
    default: T,
    help_text: str,
    metavar: str = "",
    *,
    parse: Parse | None = None,
    group: str = "sweep",
    scope: Scope = Scope.HERE,
) -> T:
    """Declare a setting, as a field of `Settings`."""
    about = {"help": help_text, "parse": parse, "metavar": metavar, "group": group, "scope": scope}
    return field(default=default, metadata=about)


place = partial(setting, group="place")
measure = partial(setting, group="measure", scope=Scope.SWEEP)
planned = partial(setting, scope=Scope.PLAN)
swept = partial(setting, scope=Scope.SWEEP)
ordered = partial(setting, scope=Scope.RUN)
selection = partial(setting, group="selection", scope=Scope.PLAN)


def options_of(settings: type[DataclassInstance]) -> Iterator[Option]:
    """The fields that are settings."""
    hints = get_type_hints(settings)
    for one in fields(settings):
        if about := dict(one.metadata):
            kinds = get_args(hints[one.name]) or (hints[one.name],)
            parse = about["parse"] = about["parse"] or _PARSERS.get(kinds[0], str)
            about["metavar"] = about["metavar"] or _METAVARS.get(parse, one.name.upper())
            yield Option(name=one.name, type=hints[one.name], default=one.default, **about)


def _parts(text: str) -> Iterator[str]:
    """What commas separate; those in `{a,b}` belong to a glob."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        if sign == "," and depth <= 0:
            yield text[start:place]
            start = place + 1
        depth += (sign == "{") - (sign == "}")
    yield text[start:]

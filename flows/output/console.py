"""Standard output and standard error: what they can show, and what happens when they fail.

A stream may be closed from the start, fail later (a full disk, a reader that has gone) or know only
ASCII. None of that causes a traceback, and none of it ends a sweep.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import IntEnum
from typing import Any, Literal, TextIO, cast

from flows.output.activity import Activity

Choice = Literal["auto", "always", "never"]

_CODES = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_ERRORS = "modelmill-plainer"
_ALL = ("config", "home", "state", "store", "feed", "knowledge", "targets-file")
_TAKEN: Mapping[str, tuple[str, ...]] = {
    "bench compile doctor explain onboard plan review sweep trace tune verify": _ALL,
    "resume retry": ("config", "home", "state", "store", "knowledge"),
    "cancel diff report state-prune status ui": ("config", "home", "state"),
    "worker": ("config", "home", "state", "store"),
    "coverage": ("config", "home", "targets-file"),
    "rebuild feed-ls feed-show feed-verify": ("config", "home", "feed"),
    "feed-pull": ("config", "home", "feed", "targets-file"),
    "feed-promote": ("config", "home", "state", "feed", "targets-file"),
    "store-du store-gc store-clear": ("config", "home", "store"),
    "knowledge-ls knowledge-show knowledge-check": ("config", "home", "knowledge"),
    "deploy": ("config", "feed"),
    "engine-ls engine-install": ("config", "home"),
}
PLACES: Mapping[str, tuple[str, ...]] = {
    verb.replace("-", " "): flags for verbs, flags in _TAKEN.items() for verb in verbs.split()
}
"""Commands that hints name, with the flags that they need if this command was given them: all that
they take, but a sweep that goes on has its feed and its targets in its record."""
_OF_FLEETS = ("config", "state")
"""What a command with `--fleet` takes of these: workers have places of their own."""
_HINT = rf"\bmodelmill ({'|'.join(PLACES)})\b"
_OURS = re.compile(r"(\x1b\[(?:0|1|2|31|32|33)m)")
"""What `paint` writes."""
_EXTENDED = r"(\\{2,4})\?(\\{1,2})(UNC\2)?"
"""What begins a path that Windows takes without its limits; in JSON, every backslash is two."""
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters and those that turn the direction of what follows."""
_PLAINER = {"…": "...", "━": "#", "–": "-", "—": "-", "→": "->", "’": "'", "·": "."}


class Detail(IntEnum):
    """How much a running sweep prints: `-q`, the default, `-v`."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


class OutputLost(Exception):
    """Standard output cannot be written any more."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause

    @property
    def reader_left(self) -> bool:
        """Whether the other end of the pipe was closed, as `| head -1` does."""
        # Windows reports a closed pipe as EINVAL.
        return isinstance(self.cause, BrokenPipeError) or (
            sys.platform == "win32" and self.cause.errno == 22
        )


class Output:
    """A text stream that keeps its first failure and drops whatever is written after it.

    The failure is raised as `OutputLost` unless `goes_on` is set: a sweep goes on when nobody can
    read its output any more.
    """

    def __init__(self, stream: TextIO, *, goes_on: bool = False) -> None:
        self.stream = stream
        self.goes_on = goes_on
        self.colour = False
        self.detail = Detail.USUAL
        self.lost: OutputLost | None = None
        self.activity: Activity | None = None
        """The line that moves while nothing is printed; none except on a terminal."""
        self.places: Mapping[str, str] = {}
        """Flags of this command by their names, for the commands in hints."""

    def write(self, text: str) -> int:
        """Write for people, unless the stream has failed before.

        Names and texts of others are in it, so nothing but our own colours reaches the terminal
        as a command.
        """
        if os.name == "nt":
            text = plain_paths(text)
        if self.places:
            text = re.sub(_HINT, self._complete, text)
        parts = _OURS.split(text) if self.colour else [text]
        return self.write_raw(
            "".join(part if n % 2 else shown(part) for n, part in enumerate(parts))
        )

    def write_raw(self, text: str) -> int:
        """Write what may move the cursor."""
        if self.activity is not None:
            self.activity.hide()
        if self.lost is None:
            try:
                return self.stream.write(text)
            except OSError as error:
                self._lose(error)
        return len(text)

    def _complete(self, hint: re.Match[str]) -> str:
        names, rest = PLACES[hint[1]], hint.string[hint.end() :].partition("\n")[0]
        if "--fleet" in rest:
            names = tuple(name for name in names if name in _OF_FLEETS)
        return "".join([hint[0], *(self.places.get(name, "") for name in names)])

    def writelines(self, lines: Iterable[str]) -> None:
        """Write all of them."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush, unless the stream has failed before."""
        if self.lost is None:
            try:
                self.stream.flush()
            except OSError as error:
                self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost = OutputLost(error)
        # Python flushes the buffer again when it exits; send that to nowhere.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)
        if not self.goes_on:
            raise self.lost from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Moving:
    """An output for what moves the cursor."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.write = out.write_raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


def moving(out: TextIO) -> TextIO:
    """The same stream for what moves the cursor; its texts must be `shown`."""
    return cast("TextIO", _Moving(out)) if isinstance(out, Output) else out


def plain_paths(text: str) -> str:
    """A text with paths as people know them: `C:\\it` for `\\\\?\\C:\\it`."""
    return re.sub(_EXTENDED, lambda begin: begin[1] if begin[3] else "", text)


def shown(text: str) -> str:
    """A text with its control characters as escapes, except tabs and the ends of lines."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


@contextmanager
def safe_output() -> Iterator[Output]:
    """While the block runs, `sys.stdout` and `sys.stderr` fail as described above."""
    before = sys.stdout, sys.stderr
    _occupy_closed()
    out = Output(_usable(sys.stdout))
    # `print` wants a TextIO; an Output behaves like one.
    sys.stdout = cast("TextIO", out)
    errors = Output(_usable(sys.stderr), goes_on=True)
    sys.stderr = cast("TextIO", errors)
    if _moves(out.stream):
        out.activity = errors.activity = Activity(out.stream)
    try:
        yield out
    finally:
        if out.activity is not None:
            out.activity.hide()
        sys.stdout, sys.stderr = before


def _occupy_closed() -> None:
    """Take up descriptors 0 to 2 if they are closed: a file of ours that got one of these numbers
    would receive what children print."""
    with contextlib.suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(number, True)
        os.close(number)


class _Nowhere(io.StringIO):
    """Discards what is written."""

    def write(self, text: str) -> int:
        return len(text)


def _usable(stream: TextIO | None) -> TextIO:
    if stream is None:  # it was closed when Python started
        return _Nowhere()
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors=_ERRORS)
    return stream


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    shown = "".join(
        _PLAINER.get(one, one.encode("ascii", "backslashreplace").decode()) for one in text
    )
    return shown, error.end


codecs.register_error(_ERRORS, _plainer)


def choose_colour(choice: Choice, environ: Mapping[str, str]) -> None:
    """Decide whether both streams show colours: by `--color`, else NO_COLOR, else FORCE_COLOR, else
    whether they are terminals."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Output):
            stream.colour = _wanted(choice, environ, stream.stream)


def _wanted(choice: Choice, environ: Mapping[str, str], stream: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return _moves(stream, environ)


def _moves(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream is a terminal that understands escape sequences."""
    # The old console of Windows shows them as text.
    modern = sys.platform != "win32" or bool({"WT_SESSION", "ANSICON", "TERM"} & environ.keys())
    return modern and environ.get("TERM") != "dumb" and stream.isatty()


def tell(text: str) -> None:
    """Say something beside the results, on standard error."""
    print(f"modelmill: {text}", file=sys.stderr, flush=True)


def print_result(arguments: argparse.Namespace, value: Any, lines: Iterable[str]) -> None:
    """Print what a command found: with `--json` the value, else the lines."""
    if arguments.json:
        print_json(value)
    else:
        print("\n".join(lines))


def print_json(value: Any) -> None:
    """Print dataclasses, or anything made of them, for machines."""
    print(json.dumps(value, indent=1, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def coloured(stream: TextIO) -> bool:
    """Whether colours go to this stream."""
    return isinstance(stream, Output) and stream.colour


def detail_of(stream: TextIO) -> Detail:
    """How much a running sweep prints on this stream."""
    return stream.detail if isinstance(stream, Output) else Detail.USUAL


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` in a colour, where the stream (standard output) shows colours."""
    if not style or not coloured(stream or sys.stdout):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


_EXTENDED = r"(\\{2,4})\?(\\{1,2})(UNC\2)?"

"""The line that moves while a command waits: soon there, true, and gone before anything else."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable

import pytest

from flows.cli import main as cli
from flows.output.activity import Activity, waiting_for
from flows.output.console import safe_output
from matrix.errors import Exit


class Terminal(io.StringIO):
    """A terminal that keeps everything it was sent."""

    def isatty(self) -> bool:
        return True


def soon(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not check() and time.monotonic() < deadline:
        time.sleep(0.01)
    return check()


def terminal_in(patch: pytest.MonkeyPatch) -> Terminal:
    """Standard output is a terminal from here on; not a fixture, pytest would take it back."""
    made = Terminal()
    patch.setenv("TERM", "xterm")
    patch.setattr(sys, "stdout", made)
    patch.setattr(sys, "stderr", io.StringIO())
    return made


def test_it_says_what_is_waited_for_and_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    with safe_output():
        waiting_for("listing the feed dir:far")
        assert soon(lambda: terminal.getvalue().count("listing the feed dir:far") > 3)
    drawn = [one[:1] for one in terminal.getvalue().split("\r") if "listing" in one]
    assert len(set(drawn)) > 1


def test_what_is_printed_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    with safe_output():
        waiting_for("opening the state")
        assert soon(lambda: "opening" in terminal.getvalue())
        print("sweep s1")
        assert terminal.getvalue().endswith("\r\x1b[Ksweep s1\n")
        time.sleep(0.3)
        assert terminal.getvalue().endswith("sweep s1\n")


def test_it_is_gone_when_the_command_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    with safe_output():
        waiting_for("opening the state")
        assert soon(lambda: "opening" in terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_short_command_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)
    with safe_output():
        waiting_for("opening the state")
        print("done")
    assert terminal.getvalue() == "done\n"


def test_it_fits_into_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "20")
    activity = Activity(terminal)
    activity.show("listing the feed azure:https://dev.azure.com/org/project/feed")
    assert soon(lambda: bool(terminal.getvalue()))
    activity.hide()
    drawn = [one.removesuffix("\x1b[K") for one in terminal.getvalue().split("\r")]
    assert max(map(len, drawn)) == 19


def test_files_and_pipes_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with safe_output():
        waiting_for("opening the state")
        time.sleep(0.3)
    assert stream.getvalue() == ""


def test_every_command_says_that_it_is_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_in(monkeypatch)

    def slow(*_args: object, **_more: object) -> None:
        assert soon(lambda: "starting" in terminal.getvalue())
        raise SystemExit(Exit.OK)

    monkeypatch.setattr(cli, "build_parser", slow)
    assert cli.main([]) == Exit.OK
    assert terminal.getvalue().endswith("\r\x1b[K")

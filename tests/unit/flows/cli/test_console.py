"""Standard output that fails, knows little, or wants colours or none."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest

from flows.cli import main as cli
from flows.cli.commands import sweep
from flows.output.console import (
    Output,
    OutputLost,
    choose_colour,
    coloured,
    paint,
    plain_paths,
    safe_output,
)
from machine.shell import windows_word
from matrix.errors import Exit


class Broken(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.tried = 0

    def write(self, text: str) -> int:
        self.tried += 1
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_the_first_failure_is_raised_and_the_rest_is_dropped() -> None:
    stream = Broken(errno.EPIPE)
    out = Output(stream)
    with pytest.raises(OutputLost) as lost:
        out.write("one")
    assert lost.value.reader_left
    out.write("two")
    out.flush()
    assert stream.tried == 1


HOSTILE = "tiny/a\x1b]0;title\x07\x1b[2J\u202egnp.exe\r\x9b1A ok\tand\n"


def test_nothing_of_others_commands_the_terminal() -> None:
    stream = io.StringIO()
    Output(stream).write(HOSTILE)
    text = r"tiny/a\x1b]0;title\x07\x1b[2J\u202egnp.exe\r\x9b1A ok"
    assert stream.getvalue() == f"{text}\tand\n"


def test_our_colours_are_left(streams: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    out = Output(stream)
    streams.setattr(sys, "stdout", out)
    red = f"\x1b[31mbad\x1b[0m {HOSTILE}"
    out.write(red)
    assert "\x1b" not in stream.getvalue()
    choose_colour("always", {})
    stream.truncate(stream.seek(0))
    out.write(paint("bad", "red") + HOSTILE)
    assert stream.getvalue().startswith("\x1b[31mbad\x1b[0mtiny/a\\x1b]0;")
    assert stream.getvalue().count("\x1b") == 2


def test_a_sweep_goes_on_when_nobody_can_read_it() -> None:
    out = Output(Broken(errno.ENOSPC), goes_on=True)
    out.writelines(["one", "two"])
    assert out.lost is not None
    assert not out.lost.reader_left


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EPIPE, Exit.OK), (errno.ENOSPC, Exit.UNUSABLE)]
)
def test_lost_output_is_an_exit_code_and_at_most_a_line(
    streams: pytest.MonkeyPatch, number: int, code: Exit
) -> None:
    errors = io.StringIO()
    streams.setattr(sys, "stdout", Broken(number))
    streams.setattr(sys, "stderr", errors)
    assert cli.main(["--version"]) == code
    assert errors.getvalue().count("\n") == (code is Exit.UNUSABLE)


def test_streams_that_were_closed_take_everything(streams: pytest.MonkeyPatch) -> None:
    streams.setattr(sys, "stdout", None)
    streams.setattr(sys, "stderr", None)
    assert cli.main(["--version"]) == Exit.OK
    assert cli.main(["plan", "no-such-catalog"]) == Exit.USAGE


def test_ascii_is_enough(streams: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    streams.setattr(sys, "stdout", stream)
    with safe_output():
        print("a… ━ é \udcff")
    stream.flush()
    stream.seek(0)
    assert stream.read() == "a... # \\xe9 \\udcff\n"


def test_what_the_system_refuses_is_a_line(
    streams: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full/file")

    streams.setattr(cli, "build_parser", refuse)
    assert cli.main([]) == Exit.UNUSABLE
    assert capsys.readouterr().err == (
        "error: /full/file: No space left on device"
        " (free space, or choose a place on another disk with --home)\n"
    )


@pytest.mark.parametrize(
    ("choice", "environ", "wanted"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_the_flag_then_no_color_then_force_color(
    streams: pytest.MonkeyPatch, choice: str, environ: dict[str, str], wanted: bool
) -> None:
    streams.setattr(sys, "stdout", io.StringIO())
    with safe_output() as out:
        choose_colour(choice, environ)  # type: ignore[arg-type]
        assert out.colour is coloured(sys.stdout) is wanted
        assert paint("x", "red") == ("\x1b[31mx\x1b[0m" if wanted else "x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweeep"], "did you mean sweep?"),
        (["feed", "lss"], "did you mean ls?"),
        (["plan", "demo", "--tasc", "x"], "did you mean --task"),
        (["plan", "demo", "more"], "unexpected argument 'more'"),
        (["retry", "--class", "NETWERK"], "did you mean NETWORK?"),
        (["status", "--stamp", "s"], "without the flag: modelmill status STAMP"),
        (["resume", "--stamp=s"], "without the flag: modelmill resume STAMP"),
    ],
)
def test_the_nearest_word_is_suggested(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(words) == Exit.USAGE
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [((), "planning the sweep\n"), (("--json",), ""), (("-q",), "")],
)
def test_a_log_begins_before_anything_takes_time(
    flags: tuple[str, ...],
    said: str,
    streams: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[str] = []

    def run(_arguments: object) -> Exit:
        told.append(capsys.readouterr().out)
        return Exit.OK

    streams.setattr(sweep, "run", run)
    assert cli.main(["sweep", "demo", *flags]) == Exit.OK
    assert told == [said]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("m/x-y:image@qnn_npu", "m/x-y:image@qnn_npu"),
        (r"C:\models\*", r"C:\models\*"),
        (r"C:\my models", r'"C:\my models"'),
        ("C:\\my models\\", r'"C:\my models\\"'),
        ('a "b"', r'"a \"b\""'),
        ("a,b", '"a,b"'),  # a list to PowerShell
        ("a&b", '"a&b"'),
        ("@a", '"@a"'),
        ("", '""'),
    ],
)
def test_a_word_means_the_same_to_both_shells_of_windows(text: str, typed: str) -> None:
    assert windows_word(text) == typed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (r"in \\?\C:\a\b and \\?\D:\c", r"in C:\a\b and D:\c"),
        (r"\\?\UNC\server\share\a", r"\\server\share\a"),
        (r'{"dest": "\\\\?\\C:\\a"}', r'{"dest": "C:\\a"}'),
        (r'{"dest": "\\\\?\\UNC\\server\\a"}', r'{"dest": "\\\\server\\a"}'),
        (r"what? \?", r"what? \?"),
    ],
)
def test_people_see_no_prefix_of_long_paths(text: str, told: str) -> None:
    assert plain_paths(text) == told

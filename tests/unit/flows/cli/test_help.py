"""What `--help` shows: the commands in groups, and of each the flags that people use."""

from __future__ import annotations

import pytest

from flows.cli.arguments import USUAL
from flows.cli.main import COMMANDS, main
from flows.settings.settings import OPTIONS


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_bare_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    bare = told(capsys)
    assert bare == told(capsys, "--help")
    shown = [
        line.split()[0] for line in bare.splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert set(COMMANDS) <= set(shown)
    assert "examples:" in bare


def test_help_leaves_out_what_few_people_use(capsys: pytest.CaptureFixture[str]) -> None:
    short, whole = told(capsys, "sweep", "--help"), told(capsys, "sweep", "--help-all")
    assert short.startswith("usage: modelmill sweep [flags] catalog\n")
    assert "--target" in short
    assert "-t GLOB" in short
    assert "--heartbeat" not in short
    assert "--heartbeat" in whole
    assert len(short.splitlines()) < 80 < len(whole.splitlines())


def test_what_help_shows_are_settings() -> None:
    assert set(OPTIONS) >= USUAL


def test_short_flags_mean_the_long_ones(capsys: pytest.CaptureFixture[str]) -> None:
    short = ("plan", "demo", "-t", "mlas_cpu", "-m", "demo/bert-tiny", "-s", "s1", "--json")
    long = (
        "plan",
        "demo",
        "--target",
        "mlas_cpu",
        "--model",
        "demo/bert-tiny",
        "--stamp",
        "s1",
        "--json",
    )
    assert told(capsys, *short) == told(capsys, *long)

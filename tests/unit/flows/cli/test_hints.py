"""Every command and flag that a message of ours tells people to type is one that exists.

The messages are read from the source: a hint is wrong in the situation that nobody tries.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from flows.cli.main import COMMANDS, build_parser, main
from flows.output.console import PLACES, safe_output
from matrix.errors import UsageError
from matrix.status import FailureClass

ROOT = Path(__file__).parents[4]
ROOMS = ("deploy", "feed", "flows", "machine", "matrix", "modelmill", "state", "workers")
HOLE = "\0"
"""Where a value is filled in."""
FOREIGN_FLAGS = {"--force-reinstall", "--no-deps"}
"""pip's."""
PARSER = build_parser()


def texts() -> Iterator[tuple[str, str]]:
    """Every text in the source that is no docstring, with its place."""
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        parts = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if part is not node
        }
        parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in parts:
                continue
            if isinstance(node, ast.JoinedStr):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", flat(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def flat(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values
    )


def commands() -> Iterator[tuple[str, list[str]]]:
    """What people are told to type, as arguments, with its place."""
    for place, text in texts():
        for told in re.findall(r"(?<!# )\bmodelmill ([a-z][^;,()`'\"\n:]*)", text):
            words = told.replace(HOLE * 2, HOLE).split()  # the second one is a flag or nothing
            if words and words[0] in COMMANDS:
                yield place, typed(words)


def typed(words: list[str]) -> list[str]:
    """The command at the beginning of a sentence: up to the first word that is prose."""
    parser: argparse.ArgumentParser = PARSER
    found: list[str] = []
    wants = False
    for word in words:
        below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        if below and word in below[0].choices:
            parser = below[0].choices[word]
            found.append(word)
        elif word.startswith("--"):
            found.append(word)
            action = parser._option_string_actions.get(word)
            wants = action is not None and action.nargs != 0
            continue
        elif wants:
            found.append(sample(parser, found[-1], word))
        elif HOLE in word or re.fullmatch(r"[A-Z][A-Z_]+|demo|winml|bash|fish|powershell", word):
            found.append("winml" if HOLE in word and found[0] == "engine" else word)
        else:
            break
        wants = False
    return [word.replace(HOLE, "20260609") for word in found]


def sample(parser: argparse.ArgumentParser, flag: str, word: str) -> str:
    if HOLE not in word:
        return word
    action = parser._option_string_actions[flag]
    return FailureClass.NETWORK.value if action.dest == "classes" or flag == "--class" else "1"


FOUND = sorted({(place, " ".join(words)) for place, words in commands()})


def test_there_are_hints() -> None:
    assert len(FOUND) > 20
    assert {words.split()[0] for _place, words in FOUND} >= {
        "resume", "retry", "status", "report", "engine", "doctor", "sweep", "feed",
    }  # fmt: skip


@pytest.mark.parametrize(("place", "words"), FOUND)
def test_a_command_in_a_message_works_when_typed(place: str, words: str) -> None:
    try:
        PARSER.parse_args(words.split())
    except (SystemExit, UsageError) as error:
        raise AssertionError(f"{place}: modelmill {words}: {error}") from error


def test_a_flag_in_a_message_exists() -> None:
    known = set(FOREIGN_FLAGS)
    waiting: list[argparse.ArgumentParser] = [PARSER]
    while waiting:
        parser = waiting.pop()
        known |= set(parser._option_string_actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
    strange = {
        (place, flag)
        for place, text in texts()
        if " " in text
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
        if flag not in known
    }
    assert strange == set()


@pytest.mark.parametrize("command", PLACES)
def test_a_hint_is_given_flags_that_its_command_takes(command: str) -> None:
    read = PARSER.parse_args([*command.split(), *NEEDED.get(command, ()), *flags(command)])
    assert {str(getattr(read, name.replace("-", "_"))) for name in PLACES[command]} == {"x"}


def verbs(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command with its flags."""
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not below:
        yield name, set(parser._option_string_actions)
    for word, verb in below[0].choices.items() if below else ():
        yield from verbs(verb, f"{name} {word}".strip())


def test_hints_name_every_place_that_their_command_takes() -> None:
    places = {name for names in PLACES.values() for name in names}
    taken = {
        verb: {name for name in places if f"--{name}" in known} for verb, known in verbs(PARSER)
    }
    recorded = {"feed", "targets-file"}
    for verb in ("resume", "retry"):
        taken[verb] -= recorded
    assert {verb: set(names) for verb, names in PLACES.items()} == {
        verb: names for verb, names in taken.items() if names
    }


NEEDED = {
    "state prune": ["--keep", "3"],
    "bench": ["a:t@mlas_cpu"],
    "compile": ["m.onnx"],
    "coverage": ["demo"],
    "engine install": ["winml"],
    "feed pull": ["p"],
    "knowledge show": ["f"],
    "onboard": ["m"],
    "plan": ["demo"],
    "rebuild": ["p", "1.0.0"],
    "review": ["folder"],
    "trace": ["a:t@mlas_cpu"],
    "tune": ["a:t@mlas_cpu"],
    "cancel": ["s1"],
    "diff": ["A", "B"],
    "explain": ["a:t@mlas_cpu"],
    "feed promote": ["p", "1.0.0", "--view", "release"],
    "feed show": ["p", "1.0.0"],
    "store gc": ["--budget", "1GB"],
    "sweep": ["demo"],
    "verify": ["a:t@mlas_cpu"],
    "worker": ["--pool", "p"],
}


def test_a_hint_for_a_fleet_names_no_home(capsys: pytest.CaptureFixture[str]) -> None:
    with safe_output() as out:
        out.places = {"home": " --home h", "state": " --state s", "store": " --store t"}
        print("modelmill resume s1 --fleet\nmodelmill resume s1")
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "modelmill resume --state s s1 --fleet",
        "modelmill resume --home h --state s --store t s1",
    ]


def flags(command: str) -> list[str]:
    return [word for name in PLACES[command] for word in (f"--{name}", "x")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["feed", "show", "p", "1.0.0", "--feed", "some feed"],
            "(see: modelmill feed ls --feed 'some feed')",
        ),
        (["feed", "show", "p", "1.0.0", "--home", "h"], "(see: modelmill feed ls --home h)"),
        (["feed", "show", "p", "1.0.0"], "(see: modelmill feed ls)"),
    ],
)
def test_hints_about_a_feed_name_the_feed_that_was_asked(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("some feed", "h/feed", ".modelmill/feed"):
        DirectoryFeed(tmp_path / place).preflight([])
    assert main(words) != 0
    said = capsys.readouterr().err
    assert told.replace("'", '"' if sys.platform == "win32" else "'") in said


def test_hints_about_workers_name_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    with safe_output() as out:
        out.places = {"state": " --state postgresql://db/mill", "feed": " --feed f"}
        print("start modelmill worker --allow-pickle on a machine with os:windows")
    assert capsys.readouterr().out == (
        "start modelmill worker --state postgresql://db/mill --allow-pickle"
        " on a machine with os:windows\n"
    )


def test_hints_keep_passwords_to_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["status", "--state", "postgresql://mill:s3cr3t@127.0.0.1:1/x", "--stamp", "none"])
    main(["plan", "none.toml", "--state", "postgresql://mill:s3cr3t@127.0.0.1:1/x"])
    said = capsys.readouterr()
    assert said.err
    assert "s3cr3t" not in said.out + said.err


def test_a_home_in_a_folder_above_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    below = tmp_path / "deep" / "er"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert main(["status"]) == 5
    assert "--home" not in capsys.readouterr().err
    home = tmp_path / ".modelmill"
    home.mkdir()
    (home / "state.db").touch()
    assert main(["status"]) == 5
    assert f"(sweeps of a folder above are in --home {Path('../../.modelmill')})" in (
        capsys.readouterr().err
    )

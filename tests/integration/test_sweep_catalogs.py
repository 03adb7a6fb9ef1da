"""Bad catalogs and command lines: a clear line for each fault, exit 2, nothing made on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli.main import main
from tests.sweeps.command import Project, files_below

GOOD = '[[model]]\nid = "tiny/good"\ntask = "fill-mask"\nrandom = { architecture = "bert" }\n'


def entry(name: str = "tiny/a", task: str = "fill-mask", more: str = "") -> str:
    return f'[[model]]\nid = "{name}"\ntask = "{task}"\n{more}\n'


FAULTS = {
    "not TOML": ("[[model]\n", ["catalog.toml"]),
    "empty": ("", ["no model"]),
    "wrong type": (entry(more="opset = 'seventeen'"), ["opset"]),
    "two wrong types": (
        entry(more="timeout = 'soon'\nremote_code = 1"),
        ["timeout", "remote_code"],
    ),
    "unknown key": (entry(more="presicion = 'w8a16'"), ["presicion", "precision"]),
    "unknown table": ("[[modell]]\nid = 'a'\n" + GOOD, ["modell"]),
    "no id": ("[[model]]\ntask = 'fill-mask'\n", ["id"]),
    "duplicate": (entry() + entry(), ["tiny/a:fill-mask", "model 1"]),
    "unknown target": (entry(more="[model.target.qnn_npv]\nopset = 17"), ["qnn_npv", "qnn_npu"]),
    "unknown precision": (entry(more="precision = 'w8a61'"), ["w8a61", "w8a16"]),
    "unknown priority": (entry(more="priority = 'P9'"), ["P9"]),
    "bad opset": (entry(more="opset = 99"), ["99"]),
    "bad id": (entry("tiny/a b"), ["tiny/a b"]),
    "overlong id": (entry("tiny/" + "long-" * 60), ["longer than 200"]),
    "missing folder": (entry(more="folder = 'not/here'"), ["not/here"]),
    "half a random source": (entry(more="random = { seed = 1 }"), ["architecture"]),
    "negative seed": (entry(more="random = { architecture = 'bert', seed = -1 }"), ["seed"]),
    "two sources": (entry(more="hub = 'a/b'\nfolder = '.'"), ["exclude each other"]),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MODELMILL_HOME", "MODELMILL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 2) -> str:
    """The command's complaint; before it nothing was planned, and nothing is a traceback."""
    assert main(list(argv)) == code
    said = capsys.readouterr()
    assert said.out in {"", "planning the sweep\n"}
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    return said.err


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_a_catalog_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, words = FAULTS[name]
    (here / "catalog.toml").write_text(text, "utf-8")
    said = refused(capsys, "sweep", "catalog.toml")
    for word in words:
        assert word in said
    assert files_below(here) == {"catalog.toml"}


def test_all_faults_are_told_together_each_in_its_line(project: Project) -> None:
    """The real process, once: what it says and that it leaves no trace."""
    text = "".join(text for text, _words in (FAULTS[name] for name in list(FAULTS)[2:]))
    (project.folder / "catalog.toml").write_text(text, "utf-8")
    ran = project.run("sweep", "catalog.toml", plain=False)
    assert (ran.code, ran.out) == (2, "planning the sweep\n")
    first, *lines = ran.err.splitlines()
    assert first == f"error: {len(lines)} problems in the plan:"
    assert len(lines) >= len(FAULTS) - 3
    assert all(line.startswith("  catalog.toml: ") for line in lines)
    assert files_below(project.folder) == {"catalog.toml"}


NAMES = ("a/b-c", "a-b/c", "tiny/modèle", "tiny/модель", "tiny/模型")


def test_slugs_that_collide_get_names_of_their_own(project: Project) -> None:
    project.catalog(
        *(entry(name, more="random = { architecture = 'bert' }") for name in NAMES),
        entry("tiny/" + "long-" * 35, more="random = { architecture = 'bert' }"),
    )
    project.ok("sweep", "catalog.toml", "--stamp", "s1", "--target", "mlas_cpu")
    outcomes = [one for one in project.outcomes("s1").values() if one.target != "export"]
    assert len({one.package for one in outcomes}) == len(NAMES) + 1
    assert all((one.package + one.version).isascii() for one in outcomes)
    assert all(len(one.version) < 128 and len(one.package) < 256 for one in outcomes)
    project.ok("feed", "pull", "--stamp", "s1", "--dest", "out")


@pytest.mark.parametrize(
    ("catalog", "word"),
    [
        ("nowhere.toml", "nowhere.toml"),
        ("demmo", "demo"),
        (".", "."),
        ("rubbish.json", "rubbish.json"),
        ("binary.toml", "binary.toml"),
    ],
)
def test_a_catalog_that_cannot_be_read(
    here: Path, capsys: pytest.CaptureFixture[str], catalog: str, word: str
) -> None:
    (here / "rubbish.json").write_text("[{]")
    (here / "binary.toml").write_bytes(bytes(range(256)))
    said = refused(capsys, "sweep", catalog)
    assert word in said
    assert files_below(here) == {"rubbish.json", "binary.toml"}


def test_a_registry_with_faults(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"hf_id": 7, "task": "fill-mask"}, "text", {"hf_id": "a/b"}]
    (here / "registry.json").write_text(json.dumps(rows))
    said = refused(capsys, "sweep", "registry.json")
    assert said.count("\n  registry.json: ") == 2
    assert "model 1: hf_id" in said
    assert "model 2: must be a table" in said


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--target", "qnn_npux"], 2, "qnn_npu"),
        (["--precision", "w8a61"], 2, "w8a16"),
        (["--ep", "qmm"], 2, "qnn"),
        (["--device", "npuu"], 2, "npu"),
        (["--opset", "none"], 2, "--opset"),
        (["--jobs", "0"], 2, "--jobs"),
        (["--timeout", "-5"], 2, "--timeout"),
        (["--disk-budget", "lots"], 2, "--disk-budget"),
        (["--package", "{nodel}"], 2, "nodel"),
        (["--package", "UPPER case"], 2, "UPPER"),
        (["--feed", "ftp://x"], 2, "ftp"),
        (["--stamp", "///"], 2, "stamp"),
        (["--engine", "no-such-engine"], 2, "no-such-engine"),
        (["--state", "mysql://x/y"], 5, "mysql"),
        (["--model", "nothing/*"], 4, "nothing/*"),
        (["--only", "*@nowhere"], 4, "nowhere"),
        (["--no-such-flag"], 2, "--no-such-flag"),
    ],
)
def test_a_bad_command_line(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    word: str,
) -> None:
    (here / "catalog.toml").write_text(GOOD)
    said = refused(capsys, "sweep", "catalog.toml", *arguments, code=code)
    assert word in said
    assert files_below(here) <= {"catalog.toml", ".modelmill/.gitignore"}


def test_commands_that_only_read_make_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "catalog.toml").write_text(GOOD)
    for argv, code in {
        ("status",): 5,
        ("resume",): 5,
        ("retry", "--class", "CRASH"): 5,
        ("feed", "ls"): 5,
        ("feed", "pull", "x", "0.0.0-x"): 5,
    }.items():
        refused(capsys, *argv, code=code)
    assert main(["plan", "catalog.toml"]) == 0
    assert main(["sweep", "catalog.toml", "--no-publish", "--dry-run"]) in {0, 5}
    assert files_below(here) == {"catalog.toml"}

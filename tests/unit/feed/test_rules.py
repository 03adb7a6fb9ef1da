from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed.checked import differences
from feed.errors import Rejected
from feed.rules import STRICTEST, check_publish, view_problem
from matrix.digest import FileEntry
from matrix.paths import path_problem, path_problems

GOOD = FileEntry("model.onnx", 1, "a" * 64)


@pytest.mark.parametrize(
    "path",
    [
        "model.onnx",
        "a/b/c.bin",
        "model.onnx.data",
        ".hidden",
        "con1.txt",
        "com10",
        "gitignore",
        "mod\u00e8le.onnx",
        "a b.txt",
        "...x",
    ],
)
def test_ordinary_paths_pass(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("../up", "'..'"),
        ("a/../../b", "'..'"),
        ("a/./b", "'.'"),
        ("a//b", "''"),
        ("a/", "''"),
        ("a\\b", "backslash"),
        ("\\\\server\\share", "backslash"),
        ("C:/x", "Windows"),
        ("file:stream", "Windows"),
        ("what?", "Windows"),
        ("a\nb", "control"),
        ("a\x00b", "control"),
        ("a\ud800b", "control"),
        ("dot.", "ends in"),
        ("blank ", "ends in"),
        ("x" * 256, "255"),
        ("é" * 128, "255"),
        ("con", "reserved"),
        ("dir/NUL.txt", "reserved"),
        ("COM1.tar.gz", "reserved"),
        ("lpt¹", "reserved"),
        ("aux .txt", "reserved"),
        (".git", "forbidden"),
        ("sub/.GIT/config", "forbidden"),
        (".artifactignore", "forbidden"),
    ],
)
def test_paths_that_mean_something_else_somewhere_are_refused(path: str, word: str) -> None:
    assert word in str(path_problem(path))


@pytest.mark.parametrize(
    ("paths", "word"),
    [
        (["Model.onnx", "model.onnx"], "one file"),
        (["stra\u00dfe", "strasse"], "one file"),
        (["\u00e9", "e\u0301"], "one file"),
        (["a", "A/b"], "folder"),
        (["a", "a/b/c"], "folder"),
        (["x", "x"], "one file"),
    ],
)
def test_paths_that_cannot_stand_side_by_side(paths: list[str], word: str) -> None:
    found = path_problems(paths)
    assert len(found) == 1
    assert word in found[0]


def test_a_path_of_many_folders_is_refused() -> None:
    (problem,) = path_problems(["a/" * 1500 + "b"])
    assert "a path of 3001 characters, more than 1000" in problem
    assert len(problem) < 200


def test_many_problems_are_counted() -> None:
    problems = path_problems(f"../{number}" for number in range(20_000))
    assert len(problems) == 11
    assert problems[-1] == "19990 more problems of the same kinds"


def test_many_files_with_one_fault_are_counted() -> None:
    found = differences({}, {f"file-{number}": "0" for number in range(20_000)})
    assert len(found) == 11
    assert found[-1] == "the same holds for 19990 more files"


def test_all_problems_are_told_together() -> None:
    entries = [GOOD, FileEntry("../a", 1, "a" * 64), FileEntry("b", -1, "no")]
    with pytest.raises(Rejected) as caught:
        check_publish(STRICTEST, "Upper", "1.0", entries)
    assert caught.value.message.startswith("Upper 1.0: ")
    assert caught.value.message.count("; ") == 3
    with pytest.raises(Rejected, match=r"fine 1\.0\.0: a version needs at least one file"):
        check_publish(STRICTEST, "fine", "1.0.0", [])


@pytest.mark.parametrize("view", ["Release", "prerelease", "a.b-c_d", "x" * 64])
def test_views(view: str) -> None:
    assert view_problem(view) is None


@pytest.mark.parametrize("view", ["", "local", "LOCAL", "a/b", "..", "a.", "nul", "x" * 65, "a b"])
def test_bad_views(view: str) -> None:
    assert view_problem(view)


@given(st.text(max_size=40))
def test_no_path_that_passes_leaves_its_folder(path: str) -> None:
    if path_problem(path) is None:
        parts = path.split("/")
        assert all(part not in {"", ".", ".."} and ":" not in part for part in parts)
        assert not path.startswith("/")
        assert "\\" not in path

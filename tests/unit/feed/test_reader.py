from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from feed.errors import Corrupt, NotFound, Unavailable, UnsafePath
from feed.interface import write_description
from feed.reader import pull
from matrix.digest import FileEntry
from matrix.errors import UsageError
from tests.fakes.feed import Fault, FlakyFeed, MemoryFeed, tree_of, write_files
from tests.machine.dead import dead_name

FILES = {"model.onnx": b"graph", "text/model.onnx": b"tower", "build.json": b"{}"}


def packed(folder: Path, files: Mapping[str, bytes], **own: object) -> Mapping[str, bytes]:
    """A package as the workers make it: its manifest lists the other files."""
    local = write_files(folder, files)
    listed = [asdict(file.entry) for file in local if file.entry.path != "build.json"]
    return {**files, "modelmill.json": json.dumps({"files": listed, **own}).encode()}


@pytest.fixture
def memory(tmp_path: Path) -> MemoryFeed:
    made = MemoryFeed()
    files = write_files(tmp_path / "src", packed(tmp_path / "draft", FILES))
    made.publish("pkg", "1.0.0", files, write_description(tree_of(files)))
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def beside(dest: Path) -> list[str]:
    return [path.name for path in dest.parent.iterdir() if ".pull-" in path.name]


@pytest.mark.parametrize("there", ["missing", "empty", "deep"])
def test_pull_all(memory: MemoryFeed, tmp_path: Path, there: str) -> None:
    dest = tmp_path / ("a/b/out" if there == "deep" else "out")
    if there == "empty":
        dest.mkdir()
    pulled = pull(memory, "pkg", "1.0.0", dest)
    assert content(dest).keys() == {*FILES, "modelmill.json"}
    assert content(dest)["text/model.onnx"] == b"tower"
    assert not pulled.unchanged
    assert beside(dest) == []


def test_patterns_leave_the_rest(memory: MemoryFeed, tmp_path: Path) -> None:
    pull(memory, "pkg", "1.0.0", tmp_path / "out", ["*.onnx"])
    assert content(tmp_path / "out").keys() == {"model.onnx", "text/model.onnx"}
    with pytest.raises(NotFound, match="matches"):
        pull(memory, "pkg", "1.0.0", tmp_path / "none", ["*.txt"])
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("stated", [b'{"written": "by others"}', b"{"])
@pytest.mark.parametrize("patterns", [("*",), ("*.onnx",)])
def test_a_statement_that_cannot_be_read_is_none(
    tmp_path: Path, stated: bytes, patterns: tuple[str, ...]
) -> None:
    memory = MemoryFeed()
    contents = packed(tmp_path / "draft", FILES)
    files = write_files(tmp_path / "src", {**contents, "provenance.json": stated})
    memory.publish("pkg", "1.0.0", files, write_description(tree_of(files)))
    with pytest.raises(Corrupt, match=r"pkg 1.0.0 is refused: provenance\.json: "):
        pull(memory, "pkg", "1.0.0", tmp_path / "out", patterns)
    assert not (tmp_path / "out").exists()


def test_names_that_look_like_patterns(tmp_path: Path) -> None:
    memory = MemoryFeed()
    memory.publish("pkg", "1.0.0", write_files(tmp_path / "s", {"[a]": b"1", "a": b"2"}), "")
    pull(memory, "pkg", "1.0.0", tmp_path / "out", ["[[]a]"])
    assert content(tmp_path / "out") == {"[a]": b"1"}


def test_again_transfers_nothing(memory: MemoryFeed, tmp_path: Path) -> None:
    pull(memory, "pkg", "1.0.0", tmp_path / "out")
    flaky = FlakyFeed(memory)
    assert pull(flaky, "pkg", "1.0.0", tmp_path / "out").unchanged
    assert "fetch" not in flaky.calls


@pytest.mark.parametrize(
    "change", [("model.onnx", b"grapH"), ("model.onnx", b"longer"), ("extra", b"")]
)
def test_a_folder_with_other_content_is_refused(
    memory: MemoryFeed, tmp_path: Path, change: tuple[str, bytes]
) -> None:
    dest = tmp_path / "out"
    pull(memory, "pkg", "1.0.0", dest)
    (dest / change[0]).write_bytes(change[1])
    before = content(dest)
    with pytest.raises(UsageError, match="other content"):
        pull(memory, "pkg", "1.0.0", dest)
    assert content(dest) == before
    pulled = pull(memory, "pkg", "1.0.0", dest, force=True)
    assert not pulled.unchanged
    assert content(dest)["model.onnx"] == b"graph"
    assert ("extra" in content(dest)) == (change[0] == "extra")
    assert beside(dest) == []


def test_whoever_pulls_is_told_of_the_bytes_before_they_come(
    memory: MemoryFeed, tmp_path: Path
) -> None:
    told: list[int] = []

    def no_room(size: int) -> None:
        told.append(size)
        raise UsageError("no room")

    with pytest.raises(UsageError, match="no room"):
        pull(memory, "pkg", "1.0.0", tmp_path / "out", room=no_room)
    assert not (tmp_path / "out").exists()
    pull(memory, "pkg", "1.0.0", tmp_path / "out", room=told.append)
    pull(memory, "pkg", "1.0.0", tmp_path / "out", room=told.append)
    size = sum(map(len, content(tmp_path / "out").values()))
    assert told == [size, size], "nothing comes the second time"


def test_a_file_as_destination(memory: MemoryFeed, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        pull(memory, "pkg", "1.0.0", tmp_path / "out", force=True)
    with pytest.raises(UsageError, match="cannot write"):
        pull(memory, "pkg", "1.0.0", tmp_path / "out" / "below")


@pytest.mark.parametrize("fault", [Fault.HALFWAY, Fault.SHORT])
def test_a_broken_transfer_leaves_nothing(memory: MemoryFeed, tmp_path: Path, fault: Fault) -> None:
    flaky = FlakyFeed(memory).plan("fetch", fault)
    with pytest.raises((Unavailable, Corrupt)):
        pull(flaky, "pkg", "1.0.0", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert beside(tmp_path / "out") == []


@pytest.mark.parametrize("fault", [Fault.ALTERED, Fault.SHORT])
def test_a_list_that_does_not_fit_the_tree_digest(
    memory: MemoryFeed, tmp_path: Path, fault: Fault
) -> None:
    flaky = FlakyFeed(memory).plan("files", fault)
    with pytest.raises(Corrupt, match="says tree"):
        pull(flaky, "pkg", "1.0.0", tmp_path / "out")


def test_missing_and_deleted(memory: MemoryFeed, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is not in"):
        pull(memory, "pkg", "1.0.1", tmp_path / "out")
    memory.delete("pkg", "1.0.0")
    with pytest.raises(NotFound, match="deleted"):
        pull(memory, "pkg", "1.0.0", tmp_path / "out")


@pytest.mark.parametrize(
    "own",
    [
        b"[]",
        b"{",
        b'"x"',
        b"7",
        b'{"files": 7}',
        b'{"files": [{"path": "model.onnx"}]}',
        b'{"files": []}',
        b'{"files": [{"path": "model.onnx", "size": 5, "sha256": []}]}',
    ],
)
def test_a_package_whose_own_list_differs(tmp_path: Path, own: bytes) -> None:
    memory = MemoryFeed()
    files = write_files(tmp_path / "s", {"model.onnx": b"graph", "modelmill.json": own})
    memory.publish("pkg", "1.0.0", files, "")
    with pytest.raises(Corrupt, match=r"modelmill\.json"):
        pull(memory, "pkg", "1.0.0", tmp_path / "out", ["*.onnx"])
    assert not (tmp_path / "out").exists()


def test_a_manifest_without_a_list_is_somebody_elses(tmp_path: Path) -> None:
    memory = MemoryFeed()
    files = write_files(tmp_path / "s", {"model.onnx": b"graph", "modelmill.json": b"{}"})
    memory.publish("pkg", "1.0.0", files, "")
    assert pull(memory, "pkg", "1.0.0", tmp_path / "out").tree == tree_of(files)


@pytest.mark.parametrize(
    "path", ["../up", "/abs", "a/../../up", "C:/x", "..\\up", "nul", "a/con.txt", ".git", "x\n"]
)
def test_hostile_names(tmp_path: Path, path: str) -> None:
    memory = MemoryFeed()
    (good,) = write_files(tmp_path / "s", {"x": b"x"})
    entry = FileEntry(path, 1, good.entry.sha256)
    memory.hold("pkg", "1.0.0", {path: b"x"}, [entry])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsafePath):
        pull(memory, "pkg", "1.0.0", tmp_path / "dest" / "out")
    with pytest.raises(UnsafePath):
        memory.fetch("pkg", "1.0.0", tmp_path / "dest" / "out")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_in_the_destination_is_not_followed(memory: MemoryFeed, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    dest = tmp_path / "out"
    dest.mkdir()
    (dest / "text").symlink_to(outside)
    (dest / "model.onnx").symlink_to(tmp_path / "src" / "build.json")
    with pytest.raises(UnsafePath, match="link"):
        pull(memory, "pkg", "1.0.0", dest, force=True)
    assert list(outside.iterdir()) == []
    (dest / "text").unlink()
    pull(memory, "pkg", "1.0.0", dest, force=True)
    assert not (dest / "model.onnx").is_symlink()
    assert (tmp_path / "src" / "build.json").read_bytes() == b"{}"


def test_what_a_dead_pull_left_is_cleaned(memory: MemoryFeed, tmp_path: Path) -> None:
    left = tmp_path / f".out.pull-{dead_name()}"
    left.mkdir()
    (left / "model.onnx").write_bytes(b"half")
    pull(memory, "pkg", "1.0.0", tmp_path / "out")
    assert beside(tmp_path / "out") == []


def test_no_half_written_file_has_its_name(memory: MemoryFeed, tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(_done: int, _total: int) -> None:
        seen.append((tmp_path / "out").exists())

    pull(memory, "pkg", "1.0.0", tmp_path / "out", progress=look)
    assert seen
    assert not any(seen)

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from machine.files import hash_file, unlink
from matrix.digest import FileEntry
from workers.errors import CorruptBlob, StoreError
from workers.store import Action, Store, usage_of
from workers.store.actions import Actions
from workers.store.blobs import Blobs, NotAFile
from workers.store.folder import TAG, is_store

KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def ingest(store: Store, key: str = KEY, **files: bytes) -> Action:
    out = store.scratch.new_folder()
    for name, data in files.items():
        path = out / name.replace("__", "/").replace("_onnx", ".onnx")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return store.ingest(out, Action(key, {"stage": "x"}, (), {"f": 1}, {}, 1.5, 7, "model x"))


def blob_files(store: Store) -> list[Path]:
    return [path for path in (store.root / "blobs").rglob("*") if path.is_file()]


def used_at(store: Store, key: str, seconds: float) -> None:
    os.utime(store.root / "actions" / key[:2] / f"{key}.json", (seconds, seconds))


def test_what_goes_in_comes_out(store: Store, tmp_path: Path) -> None:
    action = ingest(store, model_onnx=b"model", sub__data=b"data")
    assert store.lookup(KEY) == action
    assert [file.path for file in action.files] == ["model.onnx", "sub/data"]
    store.materialize(action.files, tmp_path / "out")
    assert (tmp_path / "out" / "sub" / "data").read_bytes() == b"data"
    assert usage_of(store.root).size == 9
    assert store.lookup(OTHER) is None


def test_what_processes_leave_of_a_store_that_was_removed_under_them_is_a_store_again(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    (root / "locks").mkdir(parents=True)
    (root / "actions" / "ab").mkdir(parents=True)
    for left in (root / "gate.lock", root / "locks" / "abc.lock"):
        left.touch()
    Store(root)
    assert is_store(root)


@pytest.mark.parametrize("content", ["notes.txt", "tmp/model.onnx"])
def test_a_folder_with_other_things_is_not_made_a_store(tmp_path: Path, content: str) -> None:
    (tmp_path / content).parent.mkdir(exist_ok=True)
    (tmp_path / content).write_text("mine")
    with pytest.raises(StoreError, match="is not a store"):
        Store(tmp_path)
    assert not is_store(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links_in_the_store_are_not_followed(store: Store, tmp_path: Path) -> None:
    ingest(store, a=b"1234")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ("c" * 64)).write_bytes(b"mine")
    for path, target in {
        "blobs/loop": "loop",
        "blobs/cc": str(elsewhere),
        f"blobs/{blob_files(store)[0].parent.name}/loop": "loop",
        "actions/loop": "loop",
        f"actions/{KEY[:2]}/loop.json": "loop.json",
    }.items():
        (store.root / path).symlink_to(target)
    assert usage_of(store.root).size == 4
    assert store.gc(0).freed == 4
    assert (elsewhere / ("c" * 64)).exists()


def test_equal_bytes_are_one_blob_and_the_tree_is_the_content(store: Store) -> None:
    one = ingest(store, a=b"same", b=b"same")
    two = ingest(store, OTHER, a=b"same", b=b"same")
    assert one.tree == two.tree
    assert len(blob_files(store)) == 1
    assert store.size() == 4


def test_ingesting_moves_the_file_and_reads_it_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counting(path: Path, copy: Path | None = None) -> tuple[str, int]:
        read.append(path)
        assert copy is None
        return hash_file(path, copy)

    monkeypatch.setattr("workers.store.blobs.hash_file", counting)
    out = store.scratch.new_folder()
    (out / "big").write_bytes(b"x" * 100_000)
    inode = (out / "big").stat().st_ino
    action = store.ingest(out, Action(KEY, {}, (), {}, {}, 0, 0))
    store.materialize(action.files, store.scratch.new_folder())
    assert len(read) == 1
    assert store.source(action.files[0]).stat().st_ino == inode
    assert not os.access(store.source(action.files[0]), os.W_OK) or os.geteuid() == 0


def test_an_output_that_somebody_else_links_to_is_copied(store: Store, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"cache of somebody")
    out = store.scratch.new_folder()
    os.link(theirs, out / "weights")
    action = store.ingest(out, Action(KEY, {}, (), {}, {}, 0, 0))
    theirs.write_bytes(b"changed afterwards")
    assert store.source(action.files[0]).read_bytes() == b"cache of somebody"
    assert theirs.stat().st_mode & 0o200


def test_a_link_is_no_output(store: Store, tmp_path: Path) -> None:
    out = store.scratch.new_folder()
    (out / "odd").symlink_to(tmp_path)
    with pytest.raises(NotAFile, match="not a plain file"):
        store.ingest(out, Action(KEY, {}, (), {}, {}, 0, 0))
    assert usage_of(store.root).actions == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_a_pipe_is_no_output(store: Store) -> None:
    out = store.scratch.new_folder()
    os.mkfifo(out / "odd")
    with pytest.raises(NotAFile, match="not a plain file"):
        store.ingest(out, Action(KEY, {}, (), {}, {}, 0, 0))


@pytest.mark.parametrize("damage", ["missing", "short", "record", "record-of-another"])
def test_a_hit_needs_a_sound_record_and_every_blob(store: Store, damage: str) -> None:
    action = ingest(store, a=b"one", b=b"two")
    record = store.root / "actions" / KEY[:2] / f"{KEY}.json"
    blob = store.source(action.files[1])
    if damage == "missing":
        unlink(blob)
    elif damage == "short":
        blob.chmod(0o600)
        blob.write_bytes(b"t")
    elif damage == "record":
        record.write_bytes(record.read_bytes()[:-9])
    else:
        record.write_bytes(record.read_bytes().replace(KEY.encode(), OTHER.encode()))
    assert store.lookup(KEY) is None
    again = ingest(store, a=b"one", b=b"two")
    assert store.lookup(KEY) == again
    store.materialize(again.files, store.scratch.new_folder())


@pytest.mark.parametrize(
    ("path", "sha256"),
    [("../../victim", ""), ("a/../../victim", ""), ("/victim", ""), ("a", "../victim")],
)
def test_a_record_names_nothing_outside(
    store: Store, tmp_path: Path, path: str, sha256: str
) -> None:
    action = ingest(store, a=b"one")
    victim = store.root.parent / "victim"
    victim.write_text("mine", "utf-8")
    wrong = replace(action.files[0], path=path, sha256=sha256 or action.files[0].sha256)
    record = asdict(replace(action, files=(wrong,)))
    Actions(store.root / "actions", tmp_path).write(KEY, record)
    assert store.lookup(KEY) is None
    store.gc(0, time.time() + 60)
    assert victim.read_text("utf-8") == "mine"


def test_a_corrupt_blob_is_removed_and_its_actions_dropped(store: Store) -> None:
    action = ingest(store, a=b"right")
    ingest(store, OTHER, b=b"unconcerned")
    blob = store.source(action.files[0])
    blob.chmod(0o600)
    blob.write_bytes(b"wrong")
    with pytest.raises(CorruptBlob, match="holds other bytes"):
        store.materialize(action.files, store.scratch.new_folder())
    assert store.lookup(KEY) is None
    assert store.lookup(OTHER) is not None
    assert not blob.exists()
    ingest(store, a=b"right")
    store.materialize(action.files, store.scratch.new_folder())


def test_a_new_process_hashes_what_it_has_not_seen(store: Store) -> None:
    action = ingest(store, a=b"right")
    blob = store.source(action.files[0])
    before = blob.stat()
    blob.chmod(0o600)
    blob.write_bytes(b"wrong")
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    fresh = Store(store.root)
    with pytest.raises(CorruptBlob):
        fresh.materialize(action.files, fresh.scratch.new_folder())


def test_an_unreadable_blob_equals_nothing_and_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = ingest(store, a=b"right")
    fresh = Store(store.root)

    def refuse(path: Path, copy: Path | None = None) -> tuple[str, int]:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("workers.store.blobs.hash_file", refuse)
        with pytest.raises(CorruptBlob, match="cannot be read"):
            fresh.materialize(action.files, fresh.scratch.new_folder())
    assert fresh.lookup(KEY) is None
    ingest(fresh, a=b"right")
    fresh.materialize(action.files, fresh.scratch.new_folder())


def test_an_unreadable_output_is_an_error_and_no_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, copy: Path | None = None) -> tuple[str, int]:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("workers.store.blobs.hash_file", refuse)
    with pytest.raises(OSError, match="Input/output"):
        ingest(store, a=b"one")
    assert store.lookup(KEY) is None
    assert blob_files(store) == []


def test_distrust_finds_what_is_wrong_and_only_that(store: Store) -> None:
    action = ingest(store, a=b"right", b=b"good")
    blob = store.source(action.files[0])
    blob.chmod(0o600)
    blob.write_bytes(b"wrong")
    store.distrust(action.files)
    assert not blob.exists()
    assert store.source(action.files[1]).exists()


def test_what_is_brought_while_it_is_found_missing_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two slots run equal exports: the blob that one looked for came from the other."""
    files = ingest(store, a=b"equal").files
    check = Blobs.check
    unlink(store.source(files[0]))

    def late(blobs: Blobs, file: FileEntry, *, afresh: bool = False) -> None:
        try:
            check(blobs, file, afresh=afresh)
        except CorruptBlob:
            monkeypatch.setattr(Blobs, "check", check)
            ingest(store, OTHER, a=b"equal")
            raise

    monkeypatch.setattr(Blobs, "check", late)
    store.distrust(files)
    assert store.source(files[0]).read_bytes() == b"equal"
    assert store.lookup(OTHER) is not None


def test_tools_get_files_of_their_own_where_links_would_be_refused(store: Store) -> None:
    big = b"x" * (1 << 20)
    action = ingest(store, model_onnx=big, weights=big + b"1", small_onnx=b"s")
    out = store.scratch.new_folder()
    store.materialize(action.files, out, alone=True)
    links = {path.name: path.stat().st_nlink for path in out.iterdir()}
    assert links == {"model.onnx": 2, "weights": 1, "small.onnx": 1}


def test_collection_takes_the_least_recently_used_first(store: Store) -> None:
    keys = [digit * 64 for digit in "123"]
    for age, key in enumerate(keys):
        ingest(store, key, shared=b"shared", own=key[:10].encode())
        used_at(store, key, 1000 - age)
    report = store.gc(6 + 10)
    assert [item.key for item in report.evicted] == [keys[2], keys[1]]
    assert report.evicted[0].subject == "model x"
    assert (report.freed, report.kept) == (20, 16)
    assert store.lookup(keys[0]) is not None
    assert usage_of(store.root).size == 16


def test_what_was_not_used_for_long_goes_within_any_budget(store: Store) -> None:
    keys = [digit * 64 for digit in "123"]
    for age, key in enumerate(keys):
        ingest(store, key, own=key[:10].encode())
        used_at(store, key, 1000 - age)
    elsewhere = Store(store.root)
    with elsewhere.in_use():
        elsewhere.lookup(keys[2])
        assert [item.key for item in store.gc(1 << 40, 1000).evicted] == [keys[1]]
    assert store.gc(1 << 40, 1000).evicted == ()


def test_a_look_up_is_a_use(store: Store) -> None:
    for key in (KEY, OTHER):
        ingest(store, key, own=key[:10].encode())
        used_at(store, key, 1000)
    store.lookup(KEY)
    store.gc(10)
    assert store.lookup(KEY) is not None
    assert store.lookup(OTHER) is None


def test_what_is_in_use_is_not_evicted_by_anybody(store: Store) -> None:
    for key in (KEY, OTHER):
        ingest(store, key, own=key[:10].encode())
        used_at(store, key, 1000)
    elsewhere = Store(store.root)
    with store.in_use():
        store.lookup(KEY)
        report = elsewhere.gc(0)
        assert [item.key for item in report.evicted] == [OTHER]
        assert report.pinned == 1
        assert store.lookup(KEY) is not None
    assert [item.key for item in elsewhere.gc(0).evicted] == [KEY]


def test_bytes_that_no_record_names_are_removed(store: Store) -> None:
    action = ingest(store, a=b"orphan")
    (store.root / "actions" / KEY[:2] / f"{KEY}.json").unlink()
    report = store.gc(1 << 40)
    assert (report.freed, report.evicted) == (6, ())
    assert not store.source(action.files[0]).exists()


def test_clear_leaves_an_empty_store(store: Store) -> None:
    ingest(store, a=b"one")
    store.notes.write("kind", "name", {"x": 1})
    unlink(store.source(ingest(store, OTHER, b=b"two").files[0]))
    store.clear()
    assert usage_of(store.root) == replace(usage_of(store.root), actions=0, blobs=0, size=0)
    assert store.notes.read("kind", "name") is None
    assert is_store(store.root)


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path: Path, store: Store) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="is not a store"):
        Store(home)
    (home / TAG).write_text("Signature: 8a477f597d28d172789f06886806bc55\n# pip\n")
    with pytest.raises(StoreError, match="is not a store"):
        Store(home)
    ingest(store, a=b"one")
    (store.root / TAG).unlink()
    for remove in (store.gc, store.clear):
        with pytest.raises(StoreError, match="nothing is removed"):
            remove()
    assert store.lookup(KEY) is not None


def test_the_tag_is_the_one_backup_tools_know(store: Store) -> None:
    text = (store.root / TAG).read_text()
    assert text.startswith("Signature: 8a477f597d28d172789f06886806bc55\n# modelmill store")


def test_a_store_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used: "):
        Store(tmp_path / "file" / "store")


def test_notes_that_cannot_be_understood_were_never_written(store: Store) -> None:
    store.notes.write("kind", "name", [1])
    assert store.notes.read("kind", "name") == [1]
    for path in (store.root / "notes").rglob("*.json"):
        path.write_bytes(b"{rubbish")
    assert store.notes.read("kind", "name") is None


def test_a_clock_that_went_back_costs_at_most_a_rebuild(store: Store) -> None:
    ingest(store, KEY, a=b"one")
    used_at(store, KEY, time.time() + 10**6)
    with store.in_use():
        assert store.lookup(KEY) is not None
        assert store.gc(0).evicted == ()
    entry = FileEntry("a", 3, "0" * 64)
    with pytest.raises(CorruptBlob):
        store.materialize([entry], store.scratch.new_folder())

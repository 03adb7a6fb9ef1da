"""A damaged store heals: what is wrong is removed and made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from machine.files import remove_tree, unlink
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.store import Store, usage_of


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def into_folder(path: Path) -> None:
    unlink(path)
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def each(part: str, damage: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(store: Path) -> None:
        for path in files(store / part):
            path.chmod(0o644)
            damage(path)

    return apply


def other_shape(value: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(value), "utf-8")


def other_fields(path: Path) -> None:
    """Still a record with the fields of a record, but with other values in them."""
    text = path.read_text("utf-8")
    path.write_text(text.replace('"facts": {', '"facts": {"components": 5, '), "utf-8")


def deep(path: Path) -> None:
    path.write_text("[" * 100_000, "utf-8")


def into_file(*parts: str) -> Callable[[Path], None]:
    def apply(store: Path) -> None:
        for name in parts:
            remove_tree(store / name)
            (store / name).write_bytes(b"a file")

    return apply


def shards_into_files(part: str) -> Callable[[Path], None]:
    def apply(store: Path) -> None:
        for shard in list((store / part).iterdir()):
            remove_tree(shard)
            shard.write_bytes(b"a file")

    return apply


def locks_into_folders(store: Path) -> None:
    for path in (*files(store / "locks"), store / "gate.lock", store / "tmp" / "gate.lock"):
        path.unlink(missing_ok=True)
        path.mkdir()
    (store / "tmp" / "123-abc.lock").mkdir()


DAMAGE = {
    "records-flipped": each("actions", flip),
    "records-zeroed": each("actions", zero),
    "records-list": each("actions", other_shape([])),
    "records-number": each("actions", other_shape(5)),
    "records-null": each("actions", other_shape(None)),
    "records-other-fields": each("actions", other_fields),
    "records-deep": each("actions", deep),
    "records-folders": each("actions", into_folder),
    "notes-list": each("notes", other_shape([1])),
    "notes-object": each("notes", other_shape({"now": 5})),
    "notes-folders": each("notes", into_folder),
    "blobs-folders": each("blobs", into_folder),
    "blobs-flipped": each("blobs", flip),
    "blob-shards-files": shards_into_files("blobs"),
    "record-shards-files": shards_into_files("actions"),
    "note-kinds-files": shards_into_files("notes"),
    "actions-file": into_file("actions"),
    "all-files": into_file("actions", "blobs", "notes", "locks"),
    "tmp-file": into_file("tmp"),
    "locks-folders": locks_into_folders,
}


@pytest.fixture
def swept(harness: SweepHarness) -> SweepHarness:
    harness.sweep(make_plan(small_model()))
    harness.store.close()
    return harness


def trees(harness: SweepHarness, stamp: str) -> dict[str, str | None]:
    """Of a stamp, by version without it; the index names versions, so it is left out."""
    return {
        version.replace(stamp, ""): tree
        for (package, version), tree in harness.versions().items()
        if stamp in version and package != "modelmill-index"
    }


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_store_heals(swept: SweepHarness, name: str) -> None:
    DAMAGE[name](swept.root / "store")
    swept.store = Store(swept.root / "store")
    plan = make_plan(small_model(), stamp="20260610")
    assert swept.sweep(plan).counts == {"published": 3}
    assert trees(swept, "20260610") == trees(swept, "20260609")
    swept.store.gc(1 << 40)
    assert usage_of(swept.store.root).actions


@pytest.mark.parametrize("name", ["actions-file", "blob-shards-files", "notes-folders"])
def test_damage_while_the_store_is_open_heals_too(swept: SweepHarness, name: str) -> None:
    swept.store = Store(swept.root / "store")
    DAMAGE[name](swept.root / "store")
    plan = make_plan(small_model(), stamp="20260610")
    assert swept.sweep(plan).counts == {"published": 3}

"""Compiled cells that begin with a package: which of its files and of its export they compile."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from machine.files import hash_file
from matrix.digest import BUILD_RECORD, MANIFEST, FileEntry, tree_digest
from matrix.model import Cell, Origin
from tests.sweeps.in_memory import small_model
from workers.build.origin import PACKAGE, begin
from workers.store import Store

APART = ["encoder/model.onnx", "decoder/model.onnx"]
SHARED = ["encoder.onnx", "decoder.onnx", "weights.data"]
SIDE = ["composition.json", "config.json"]


def package(folder: Path, cell: Cell, files: list[str], *, self_contained: bool) -> Cell:
    """A portable package of two components, and the cell that begins with it."""
    for path in (*files, *SIDE):
        write(folder / path, f"package {path}")
    if self_contained:
        for path in (*files, *SIDE):
            write(folder / "export" / path, f"export {path}")
    manifest = {
        "kind": "cell",
        "cell": cell.id,
        "policy": asdict(cell.policy),
        "engine": {"name": "fake", "tools": {}},
        "source": {"digest": "0" * 64},
        "notices": [],
        "components": ["encoder", "decoder"],
        "stages": [{"stage": name, "component": "", "key": name} for name in ("export", "share")],
    }
    write(folder / MANIFEST, json.dumps(manifest))
    entries = [entry(folder, file) for file in folder.rglob("*") if file.is_file()]
    write(folder / BUILD_RECORD, "{}")
    return replace(cell, origin=Origin(cell.version, tree_digest(entries)))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def entry(folder: Path, file: Path) -> FileEntry:
    digest, size = hash_file(file)
    return FileEntry(file.relative_to(folder).as_posix(), size, digest)


@pytest.mark.parametrize("self_contained", [False, True])
@pytest.mark.parametrize("files", [APART, SHARED])
def test_the_graphs_of_the_package_are_compiled_and_not_those_of_its_export(
    tmp_path: Path, files: list[str], self_contained: bool
) -> None:
    made = tmp_path / "made"
    cell = package(made, small_model().cells[0], files, self_contained=self_contained)
    store = Store(tmp_path / "store")

    def fetch(_cell: Cell, folder: Path) -> None:
        made.rename(folder / PACKAGE)

    begun = begin(store, cell, fetch)
    assert begun is not None
    assert begun.self_contained == self_contained
    store.materialize(begun.results.package, tmp_path / "out")
    found = {
        file.relative_to(tmp_path / "out").as_posix(): file.read_text("utf-8")
        for file in (tmp_path / "out").rglob("*")
        if file.is_file()
    }
    assert {path: found[path] for path in files} == {path: f"package {path}" for path in files}
    assert set(found) == {*files, *SIDE}
    store.close()

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from machine.files import hash_file, unlink
from matrix.digest import FileEntry, tree_digest
from matrix.model import Cell
from tests.engines.builder import BuilderHarness
from tests.plans.cells import LABELS, make_cell, make_model, plan_model
from workers.build import keys
from workers.build.builder import Builder, Built
from workers.build.keys import Reason, last_keys
from workers.errors import StoreError
from workers.host.watch import Watching
from workers.store import usage_of


def on_disk(built: Built) -> dict[str, tuple[str, int]]:
    return {
        path.relative_to(built.folder).as_posix(): hash_file(path)
        for path in built.folder.rglob("*")
        if path.is_file()
    }


def explain(builder: Builder, cell: Cell) -> list[Reason]:
    return keys.explain(builder.keys(cell), last_keys(builder.store.notes, cell.id))


def test_a_package_is_exactly_what_it_says(harness: BuilderHarness) -> None:
    built = harness.builder.build(make_cell(precision="w8a16", label="qnn_npu"))
    entries = {file.entry.path: (file.entry.sha256, file.entry.size) for file in built.files}
    assert on_disk(built) == entries
    judged = [f"samples/0{number}.npz" for number in range(4)]
    assert sorted(entries) == ["build.json", "model.onnx", "modelmill.json", *judged]
    assert built.tree == tree_digest(file.entry for file in built.files)
    manifest = json.loads((built.folder / "modelmill.json").read_bytes())
    assert manifest == built.manifest
    assert manifest["files"] == [
        {"path": path, "size": entries[path][1], "sha256": entries[path][0]}
        for path in ("model.onnx", *judged)
    ]
    assert [stage["stage"] for stage in manifest["stages"]] == [
        "export",
        "inputs",
        "optimize",
        "quantize",
    ]
    record = json.loads((built.folder / "build.json").read_bytes())
    assert record["stamp"] == "20260609"
    assert [stage["reused"] for stage in record["stages"]] == [False] * 4


def test_the_manifest_knows_no_stamp_no_machine_and_no_time(
    harness: BuilderHarness, tmp_path: Path
) -> None:
    text = harness.builder.build(make_cell()).folder.joinpath("modelmill.json").read_text()
    for secret in ("20260609", str(tmp_path), platform.node(), "seconds", "version"):
        assert secret not in text


def test_the_same_inputs_give_the_same_bytes_anywhere(tmp_path: Path) -> None:
    model = make_model(components=["enc", "dec"], files={"config.json": "{}"})
    one, two = BuilderHarness(tmp_path / "one"), BuilderHarness(tmp_path / "two" / "deeper")
    first = one.builder.build(make_cell(model))
    later = replace(make_cell(model), version="0.0.0-20270101-x")
    second = two.builder.build(later, attempt=3)
    assert first.tree == second.tree
    ours, theirs = on_disk(first), on_disk(second)
    assert ours.pop("build.json") != theirs.pop("build.json")
    assert ours == theirs


def test_eight_targets_share_everything_that_is_equal(harness: BuilderHarness) -> None:
    model = plan_model()
    built = [harness.builder.build(cell) for cell in model.cells]
    assert harness.host.ran == ["export", "inputs", "optimize", "quantize"]
    distinct = {run.key for one in built for run in one.stages}
    assert len(distinct) == len(harness.host.ran)
    assert len({one.tree for one in built}) == len(LABELS)
    assert len({one.manifest["export"]["tree"] for one in built}) == 1


def test_the_export_package_is_what_the_cells_name(harness: BuilderHarness) -> None:
    model = plan_model(components=["enc", "dec"], files={"config.json": "{}"})
    export = harness.builder.build(model.cells[0], export_version=model.export_version)
    cell = harness.builder.build(model.cells[0])
    assert harness.host.ran.count("export") == 1
    assert cell.manifest["export"] == {"tree": export.tree}
    assert [file.entry.path for file in export.files] == [
        "config.json",
        "dec/model.onnx",
        "enc/model.onnx",
        "modelmill.json",
        "build.json",
    ]


def test_self_contained_puts_the_export_into_the_package(tmp_path: Path) -> None:
    harness = BuilderHarness(tmp_path, self_contained=True)
    built = harness.builder.build(make_cell(files={"config.json": "{}"}))
    paths = {file.entry.path for file in built.files}
    assert {"model.onnx", "export/model.onnx", "export/config.json"} <= paths


def test_the_tree_is_known_before_only_if_everything_is_there(harness: BuilderHarness) -> None:
    cell = make_cell()
    assert harness.builder.predict(cell) is None
    built = harness.builder.build(cell)
    ran = len(harness.host.ran)
    assert harness.builder.predict(cell) == built.tree
    unlink(harness.store.source(built.files[0].entry))
    assert harness.builder.predict(cell) is None
    assert len(harness.host.ran) == ran


def test_the_engine_is_asked_for_a_plan_once(harness: BuilderHarness) -> None:
    for _ in range(3):
        harness.builder.build(make_cell()).release()
        harness.builder.predict(make_cell())
    assert harness.host.plans == 1


def test_what_a_package_was_made_of_stays_until_it_is_let_go(harness: BuilderHarness) -> None:
    built = harness.builder.build(make_cell())
    harness.store.gc(0)
    assert harness.store.source(built.export[0]).is_file()
    built.let_go()
    harness.store.gc(0)
    assert usage_of(harness.store.root).size == 0
    assert built.files[0].source.is_file(), "the package itself is complete"


def test_a_build_reports_what_it_is_doing_and_what_it_reused(harness: BuilderHarness) -> None:
    seen: list[str] = []
    built = harness.builder.build(make_cell(), Watching(progress=seen.append))
    assert seen[:3] == ["exporting", "export begins", "making inputs"]
    assert [(run.stage, run.reused, run.bytes > 0) for run in built.stages] == [
        ("export", False, True),
        ("inputs", False, True),
        ("optimize", False, True),
    ]
    seen.clear()
    again = harness.builder.build(make_cell(), Watching(progress=seen.append))
    assert [run.reused for run in again.stages] == [True, True, True]
    assert seen == []


def test_a_kept_package_is_nobodys_link(harness: BuilderHarness, tmp_path: Path) -> None:
    built = harness.builder.build(make_cell())
    kept = built.move_to(tmp_path / "kept" / "v1")
    assert not (built.folder / "model.onnx").exists()
    assert (kept / "model.onnx").stat().st_nlink == 1
    assert {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()} == {
        file.entry.path for file in built.files
    }
    again = harness.builder.build(make_cell())
    with pytest.raises(StoreError, match="there already"):
        again.move_to(kept)
    assert again.folder.exists()


def test_a_package_folder_is_used_once_and_goes_with_its_package(
    harness: BuilderHarness, tmp_path: Path
) -> None:
    first = harness.builder.build(make_cell())
    first.release()
    first.release()
    second = harness.builder.build(make_cell(precision="w8a16"))
    third = harness.builder.build(make_cell(precision="w8a16"))
    assert len({first.folder, second.folder, third.folder}) == 3
    assert not first.folder.exists()
    for file in second.files:
        assert hash_file(file.source) == (file.entry.sha256, file.entry.size)
    kept = second.move_to(tmp_path / "kept")
    assert {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()} == {
        file.entry.path for file in second.files
    }


def test_explain_says_what_differs(
    harness: BuilderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make_cell(precision="w8a16")
    assert explain(harness.builder, cell)[0].lines == ("this cell was never built with this store",)
    harness.builder.build(cell).release()
    assert all(reason.reused for reason in explain(harness.builder, cell))
    other = explain(
        harness.builder, replace(cell, policy=replace(cell.policy, optimization="extended"))
    )
    assert [(reason.stage, reason.reused) for reason in other] == [
        ("export", True),
        ("inputs", True),
        ("optimize", False),
    ]
    assert other[2].lines == ("params.level: basic -> extended",)
    harness.store.gc(0)
    gone = explain(harness.builder, cell)
    assert gone[0].lines == ("the key is the same, but its outputs are no longer in the store",)


def test_explain_after_a_rebuild_still_tells_the_last_change(harness: BuilderHarness) -> None:
    cell = make_cell()
    harness.builder.build(cell).release()
    changed = replace(cell, policy=replace(cell.policy, optimization="extended"))
    harness.builder.build(changed).release()
    last = explain(harness.builder, changed)[-1]
    assert last.reused
    assert last.lines == (
        "the key is the same as last time",
        "the last change was params.level: basic -> extended",
    )


def test_a_new_tool_version_rebuilds(
    harness: BuilderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.builder.build(make_cell()).release()
    monkeypatch.setenv("FAKE_VERSION", "2")
    later = Builder(harness.store, harness.host, harness.root / "work")
    assert explain(later, make_cell())[0].lines == ("tools.fake: 1 -> 2",)
    assert [run.reused for run in later.build(make_cell()).stages] == [False] * 3


def test_entries_stay_inside_the_package(harness: BuilderHarness) -> None:
    built = harness.builder.build(make_cell(files={"a/b/c.txt": "deep"}))
    assert all(isinstance(file.entry, FileEntry) for file in built.files)
    assert all(file.source.is_relative_to(built.folder) for file in built.files)

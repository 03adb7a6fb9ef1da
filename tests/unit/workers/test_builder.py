from __future__ import annotations

import json
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from matrix.digest import FileEntry, tree_digest
from matrix.model import Cell
from matrix.status import FailureClass
from tests.fakes.cells import LABELS, make_cell, make_model, plan_model
from tests.fakes.in_process import InProcessHost
from workers.budget import DiskBudget
from workers.builder import Builder, BuildOptions, Built
from workers.errors import BuildFailed, StoreError
from workers.explain import explain
from workers.memory_budget import MemoryBudget
from workers.stages import StageRun
from workers.store import Store
from workers.store.blobs import hash_file


class Bench:
    """A builder on a store of its own."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.host = InProcessHost(root / "logs")
        self.builder = Builder(
            self.store, self.host, root / "work", BuildOptions(stamp="20260609", **options)
        )

    def packages(self) -> list[Path]:
        return [path for path in (self.root / "work").glob("*/*") if path.is_dir()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "one")
    yield made
    made.builder.close()
    made.store.close()


def on_disk(built: Built) -> dict[str, tuple[str, int]]:
    return {
        path.relative_to(built.folder).as_posix(): hash_file(path)
        for path in built.folder.rglob("*")
        if path.is_file()
    }


def test_a_package_is_exactly_what_it_says(bench: Bench) -> None:
    built = bench.builder.build(make_cell(precision="w8a16", label="qnn_npu"))
    entries = {file.entry.path: (file.entry.sha256, file.entry.size) for file in built.files}
    assert on_disk(built) == entries
    assert sorted(entries) == ["build.json", "model.onnx", "modelmill.json"]
    assert built.tree == tree_digest(file.entry for file in built.files)
    manifest = json.loads((built.folder / "modelmill.json").read_bytes())
    assert manifest == built.manifest
    assert manifest["files"] == [
        {"path": "model.onnx", "size": entries["model.onnx"][1], "sha256": entries["model.onnx"][0]}
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


def test_the_manifest_knows_no_stamp_no_machine_and_no_time(bench: Bench, tmp_path: Path) -> None:
    text = bench.builder.build(make_cell()).folder.joinpath("modelmill.json").read_text()
    for secret in ("20260609", str(tmp_path), platform.node(), "seconds", "version"):
        assert secret not in text


def test_the_same_inputs_give_the_same_bytes_anywhere(tmp_path: Path) -> None:
    model = make_model(components=["enc", "dec"], files={"config.json": "{}"})
    one, two = Bench(tmp_path / "one"), Bench(tmp_path / "two" / "deeper")
    first = one.builder.build(make_cell(model))
    later = replace(make_cell(model), version="0.0.0-20270101-x")
    second = two.builder.build(later, attempt=3)
    assert first.tree == second.tree
    ours, theirs = on_disk(first), on_disk(second)
    assert ours.pop("build.json") != theirs.pop("build.json")
    assert ours == theirs


def test_eight_targets_share_everything_that_is_equal(bench: Bench) -> None:
    model = plan_model()
    built = [bench.builder.build(cell) for cell in model.cells]
    assert bench.host.ran == ["export", "inputs", "optimize", "quantize"]
    distinct = {run.key for one in built for run in one.stages}
    assert len(distinct) == len(bench.host.ran)
    assert len({one.tree for one in built}) == len(LABELS)
    assert len({one.export_tree for one in built}) == 1


def test_the_export_package_is_what_the_cells_name(bench: Bench) -> None:
    model = plan_model(components=["enc", "dec"], files={"config.json": "{}"})
    export = bench.builder.export_package(model.model, model.cells[0], model.export_version)
    cell = bench.builder.build(model.cells[0])
    assert bench.host.ran.count("export") == 1
    assert cell.manifest["export"] == {"tree": export.tree}
    assert [file.entry.path for file in export.files] == [
        "config.json",
        "dec/model.onnx",
        "enc/model.onnx",
        "modelmill.json",
        "build.json",
    ]


def test_self_contained_puts_the_export_into_the_package(tmp_path: Path) -> None:
    bench = Bench(tmp_path, self_contained=True)
    built = bench.builder.build(make_cell(files={"config.json": "{}"}))
    paths = {file.entry.path for file in built.files}
    assert {"model.onnx", "export/model.onnx", "export/config.json"} <= paths


def test_the_tree_is_known_before_only_if_everything_is_there(bench: Bench) -> None:
    cell = make_cell()
    assert bench.builder.predict(cell) is None
    built = bench.builder.build(cell)
    ran = len(bench.host.ran)
    assert bench.builder.predict(cell) == built.tree
    bench.store.source(built.files[0].entry).unlink()
    assert bench.builder.predict(cell) is None
    assert len(bench.host.ran) == ran


def test_the_engine_is_asked_for_a_plan_once(bench: Bench) -> None:
    for _ in range(3):
        bench.builder.build(make_cell()).release()
        bench.builder.predict(make_cell())
    assert bench.host.plans == 1


@pytest.mark.parametrize("corrupt", ["export", "optimize"])
def test_wrong_bytes_in_the_store_are_made_again(bench: Bench, corrupt: str) -> None:
    first = bench.builder.build(make_cell())
    tree = first.tree
    stages = {stage["stage"]: stage for stage in first.manifest["stages"]}
    first.release()
    action = bench.store.lookup(stages[corrupt]["key"])
    assert action is not None
    blob = bench.store.source(action.files[0])
    blob.chmod(0o600)
    blob.write_bytes(b"\0" * action.files[0].size)
    if corrupt == "export":  # read again only when something is made of it
        optimized = bench.store.lookup(stages["optimize"]["key"])
        assert optimized is not None
        bench.store.drop_blob(optimized.files[0].sha256)
    assert bench.builder.build(make_cell()).tree == tree
    assert bench.host.ran.count(corrupt) == 2


def test_a_store_that_is_always_wrong_ends_as_one_failed_cell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.store.blobs.Blobs._remember", lambda *_: None)
    other = iter(range(1000))
    monkeypatch.setattr("workers.store.blobs.hash_file", lambda *_: (f"{next(other):064x}", 1))
    with pytest.raises(BuildFailed, match="3 times in a row") as failed:
        bench.builder.build(make_cell())
    assert failed.value.failure is FailureClass.DISK
    assert bench.packages() == []


def test_distrusted_bytes_are_dropped_and_built_anew(bench: Bench) -> None:
    built = bench.builder.build(make_cell())
    assert not built.distrust()
    target = next(file for file in built.files if file.entry.path == "model.onnx")
    target.source.chmod(0o600)
    target.source.write_bytes(b"rubbish")  # a link: the store's own bytes change with it
    assert built.distrust()
    built.release()
    assert bench.builder.build(make_cell()).tree == built.tree


def test_a_failed_stage_is_not_cached_and_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    cell = make_cell(act={"optimize": f"once:{marker}:fail"})
    with pytest.raises(BuildFailed, match="told to fail") as failed:
        bench.builder.build(cell)
    assert (failed.value.failure, failed.value.hint) == (
        FailureClass.OPTIMIZE,
        "do not tell it to",
    )
    assert bench.packages() == []
    assert [path.name for path in bench.store.scratch.folder.iterdir()] == ["pins"]
    with pytest.raises(BuildFailed, match="the same run failed for"):
        bench.builder.build(cell)
    bench.builder.begin_model()
    bench.builder.build(cell)
    assert bench.host.ran == ["export", "inputs", "optimize", "optimize"]


def test_a_stage_must_not_make_our_records(bench: Bench) -> None:
    model = make_model(files={"modelmill.json": "{}"}, components=["enc"])
    with pytest.raises(BuildFailed, match=r"modelmill\.json, which is ours"):
        bench.builder.build(make_cell(model))


def test_an_odd_output_is_the_engines_fault(bench: Bench) -> None:
    with pytest.raises(BuildFailed, match="not a plain file") as failed:
        bench.builder.build(make_cell(act={"optimize": "link:/etc/passwd"}))
    assert failed.value.failure is FailureClass.OPTIMIZE
    assert not failed.value.retryable


def test_a_full_disk_in_ingest_is_classified_and_costs_one_cell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("workers.store.blobs.Blobs.move_in", full)
        with pytest.raises(BuildFailed, match="the disk is full") as failed:
            bench.builder.build(make_cell())
    assert failed.value.failure is FailureClass.DISK
    assert failed.value.retryable
    assert [path.name for path in bench.store.scratch.folder.iterdir()] == ["pins"]
    assert bench.builder.build(make_cell()).tree


def test_a_full_disk_while_the_package_is_put_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr("workers.store.blobs.place", full)
    cell = make_cell()
    with pytest.raises(BuildFailed, match="the disk is full"):
        bench.builder.build(cell)
    assert bench.packages() == []


@pytest.mark.parametrize(
    "text", ["RuntimeError: write failed: No space left on device", "Disk quota exceeded"]
)
def test_native_code_says_disk_full_in_its_own_words(bench: Bench, text: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise BuildFailed(FailureClass.EXPORT, "export", text)

    bench.host.run = fail  # type: ignore[assignment,method-assign]  # stands in for a bad engine
    with pytest.raises(BuildFailed) as failed:
        bench.builder.build(make_cell())
    assert failed.value.failure is FailureClass.DISK


class Remembering:
    """What builds took before."""

    def disk_of(self, cell: Cell, stage: str, _component: str) -> int:
        return 77 if (cell.target.label, stage) == ("ov_cpu", "export") else 0

    def memory_of(self, _cell: Cell, _stage: str, _component: str) -> int:
        return 0


def test_disk_is_reserved_only_for_what_really_runs_and_stage_by_stage(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    claimed: list[int] = []

    class Counting(DiskBudget):
        def claim(self, size: int) -> bool:
            assert self.reserved == 0, "the stage before has given back what it had"
            claimed.append(size)
            return super().claim(size)

    options = BuildOptions(expected=Remembering())
    budget = Counting(bench.store, 10**9, free=lambda _path: 1 << 50)
    builder = Builder(bench.store, bench.host, tmp_path / "w", options, budget=budget)
    for _ in range(2):
        builder.build(make_cell(disk=55))
    assert claimed == [55, 55, 55]
    builder.build(make_cell("other/model", label="ov_cpu", disk=55, salt="other"))
    assert claimed[3:] == [2 * 77, 55, 55]
    assert budget.reserved == 0


def test_a_build_that_finds_no_room_waits_with_nothing_in_use_and_counts_nothing_twice(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    waited: list[tuple[int, int]] = []

    class Crowding(DiskBudget):
        def claim(self, size: int) -> bool:
            # The export finds room; what comes after it does not.
            return not bench.store.usage().actions and super().claim(size)

        @contextmanager
        def reserve(
            self, size: int, cancel: threading.Event | None = None, *, whole: int = 0
        ) -> Iterator[int]:
            assert not bench.store.used()
            assert self.reserved == 0
            waited.append((size, whole))
            bench.store.gc(0)  # others took the room that the export had
            with super().reserve(size, cancel, whole=whole) as amount:
                yield amount

    budget = Crowding(bench.store, 10**9, free=lambda _path: 1 << 50)
    builder = Builder(bench.store, bench.host, tmp_path / "w", budget=budget)
    built = builder.build(make_cell(disk=55))
    assert waited == [(55, 55)]
    assert [(run.stage, run.reused) for run in built.stages] == [
        ("export", False),
        ("inputs", False),
        ("optimize", False),
    ]
    built.let_go()
    assert budget.reserved == 0
    assert not bench.store.used()


def test_what_a_build_made_before_it_had_to_wait_is_not_called_reused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    class Crowding(DiskBudget):
        def claim(self, size: int) -> bool:
            return not bench.store.usage().actions and super().claim(size)

    budget = Crowding(bench.store, 10**9, free=lambda _path: 1 << 50)
    builder = Builder(bench.store, bench.host, tmp_path / "w", budget=budget)
    built = builder.build(make_cell(disk=55))
    assert [run.reused for run in built.stages] == [False, False, False]
    assert builder.build(make_cell(disk=55)).stages[0].reused


def test_what_a_package_was_made_of_stays_until_it_is_let_go(bench: Bench) -> None:
    built = bench.builder.build(make_cell())
    bench.store.gc(0)
    assert bench.store.source(built.export[0]).is_file()
    built.let_go()
    bench.store.gc(0)
    assert bench.store.usage().size == 0
    assert built.files[0].source.is_file(), "the package itself is complete"


def test_who_watches_sees_what_ran_and_what_was_reused(bench: Bench) -> None:
    seen: list[str] = []

    class Watching:
        def stage_started(self, cell_id: str, stage: str, component: str) -> None:
            seen.append(f"start {stage}")

        def stage_finished(self, cell_id: str, run: StageRun) -> None:
            seen.append(f"{'reused' if run.reused else 'ran'} {run.stage} {run.bytes > 0}")

        def progress(self, cell_id: str, text: str) -> None:
            seen.append(text)

    bench.builder.build(make_cell(), observer=Watching())
    assert seen[:3] == ["start export", "export begins", "ran export True"]
    seen.clear()
    bench.builder.build(make_cell(), observer=Watching())
    assert seen == ["reused export True", "reused inputs True", "reused optimize True"]


def test_a_kept_package_is_nobodys_link(bench: Bench, tmp_path: Path) -> None:
    built = bench.builder.build(make_cell())
    kept = built.move_to(tmp_path / "kept" / "v1")
    assert not built.folder.exists()
    assert (kept / "model.onnx").stat().st_nlink == 1
    assert {path.name for path in kept.iterdir()} == {file.entry.path for file in built.files}
    again = bench.builder.build(make_cell())
    with pytest.raises(StoreError, match="there already"):
        again.move_to(kept)
    assert again.folder.exists()


def test_explain_says_what_differs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell(precision="w8a16")
    assert explain(bench.builder, cell)[0].lines == ("this cell was never built with this store",)
    bench.builder.build(cell).release()
    assert all(reason.reused for reason in explain(bench.builder, cell))
    other = explain(
        bench.builder, replace(cell, policy=replace(cell.policy, optimization="extended"))
    )
    assert [(reason.stage, reason.reused) for reason in other] == [
        ("export", True),
        ("inputs", True),
        ("optimize", False),
    ]
    assert other[2].lines == ("params.level: basic -> extended",)
    bench.store.gc(0)
    gone = explain(bench.builder, cell)
    assert gone[0].lines == ("the key is the same, but its outputs are no longer in the store",)


def test_explain_after_a_rebuild_still_tells_the_last_change(bench: Bench) -> None:
    cell = make_cell()
    bench.builder.build(cell).release()
    changed = replace(cell, policy=replace(cell.policy, optimization="extended"))
    bench.builder.build(changed).release()
    last = explain(bench.builder, changed)[-1]
    assert last.reused
    assert last.lines == (
        "the key is the same as last time",
        "the last change was params.level: basic -> extended",
    )


def test_a_new_tool_version_rebuilds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.builder.build(make_cell()).release()
    monkeypatch.setenv("FAKE_VERSION", "2")
    later = Builder(bench.store, bench.host, bench.root / "work")
    assert explain(later, make_cell())[0].lines == ("tools.fake: 1 -> 2",)
    assert [run.reused for run in later.build(make_cell()).stages] == [False] * 3


def test_entries_stay_inside_the_package(bench: Bench) -> None:
    built = bench.builder.build(make_cell(files={"a/b/c.txt": "deep"}))
    assert all(isinstance(file.entry, FileEntry) for file in built.files)
    assert all(file.source.is_relative_to(built.folder) for file in built.files)


def test_every_stage_that_runs_waits_for_its_memory(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asked: list[tuple[str, int]] = []

    class Noted(MemoryBudget):
        @contextmanager
        def reserve(self, size: int, cancel: threading.Event | None = None) -> Iterator[None]:
            asked.append(("begin", size))
            with super().reserve(size, cancel):
                yield
            asked.append(("end", self.reserved))

    class Sized(Remembering):
        def memory_of(self, _cell: Cell, stage: str, _component: str) -> int:
            return {"export": 70, "inputs": 10, "optimize": 0}[stage]

    options = BuildOptions(expected=Sized())
    builder = Builder(bench.store, bench.host, tmp_path / "w", options, memory=Noted(100))
    builder.build(make_cell())
    assert asked == [("begin", 70), ("end", 0), ("begin", 10), ("end", 0), ("begin", 0), ("end", 0)]
    builder.build(make_cell())
    assert len(asked) == 6  # what is reused takes no memory
    builder.close()

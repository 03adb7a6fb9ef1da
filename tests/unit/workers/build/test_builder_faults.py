from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from machine.files import unlink
from matrix.status import FailureClass
from tests.engines.builder import BuilderHarness
from tests.plans.cells import make_cell, make_model
from workers.errors import BuildFailed


@pytest.mark.parametrize("corrupt", ["export", "optimize"])
def test_wrong_bytes_in_the_store_are_made_again(harness: BuilderHarness, corrupt: str) -> None:
    first = harness.builder.build(make_cell())
    tree = first.tree
    stages = {stage["stage"]: stage for stage in first.manifest["stages"]}
    first.release()
    action = harness.store.lookup(stages[corrupt]["key"])
    assert action is not None
    blob = harness.store.source(action.files[0])
    blob.chmod(0o600)
    blob.write_bytes(b"\0" * action.files[0].size)
    if corrupt == "export":  # read again only when something is made of it
        optimized = harness.store.lookup(stages["optimize"]["key"])
        assert optimized is not None
        unlink(harness.store.source(optimized.files[0]))
    assert harness.builder.build(make_cell()).tree == tree
    assert harness.host.ran.count(corrupt) == 2


def test_a_store_that_is_always_wrong_ends_as_one_failed_cell(
    harness: BuilderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.store.blobs._identity", lambda _status: object())
    other = iter(range(1000))
    monkeypatch.setattr("workers.store.blobs.hash_file", lambda *_: (f"{next(other):064x}", 1))
    with pytest.raises(BuildFailed, match="3 times in a row") as failed:
        harness.builder.build(make_cell())
    assert failed.value.failure is FailureClass.DISK
    assert harness.packages() == []


def test_distrusted_bytes_are_dropped_and_built_anew(harness: BuilderHarness) -> None:
    built = harness.builder.build(make_cell())
    assert not built.distrust()
    target = next(file for file in built.files if file.entry.path == "model.onnx")
    target.source.chmod(0o600)
    target.source.write_bytes(b"rubbish")  # a link: the store's own bytes change with it
    assert built.distrust()
    built.release()
    assert harness.builder.build(make_cell()).tree == built.tree


def test_a_failed_stage_is_not_cached_and_leaves_nothing(
    harness: BuilderHarness, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    cell = make_cell(act={"optimize": f"once:{marker}:fail"})
    with pytest.raises(BuildFailed, match="told to fail") as failed:
        harness.builder.build(cell)
    assert (failed.value.failure, failed.value.hint) == (
        FailureClass.OPTIMIZE,
        "do not tell it to",
    )
    assert harness.packages() == []
    left = [path for path in harness.store.scratch.folder.rglob("*") if path.is_file()]
    assert left == []
    with pytest.raises(BuildFailed, match="the same run failed for"):
        harness.builder.build(cell)
    harness.builder.begin_model()
    harness.builder.build(cell)
    assert harness.host.ran == ["export", "inputs", "optimize", "optimize"]


def test_an_export_that_failed_is_named_as_what_failed(harness: BuilderHarness) -> None:
    cell = make_cell(act={"export": "fail"})
    for told in ("told to fail", f"failed for {cell.model.name}@export"):
        with pytest.raises(BuildFailed, match=told):
            harness.builder.build(cell)


def test_a_stage_must_not_make_our_records(harness: BuilderHarness) -> None:
    model = make_model(files={"modelmill.json": "{}"}, components=["enc"])
    with pytest.raises(BuildFailed, match=r"modelmill\.json, which is ours"):
        harness.builder.build(make_cell(model))


def test_an_odd_output_is_the_engines_fault(harness: BuilderHarness) -> None:
    with pytest.raises(BuildFailed, match="not a plain file") as failed:
        harness.builder.build(make_cell(act={"optimize": "link:/etc/passwd"}))
    assert failed.value.failure is FailureClass.OPTIMIZE
    assert not failed.value.retryable


def test_a_full_disk_in_ingest_is_classified_and_costs_one_cell(
    harness: BuilderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("workers.store.blobs.Blobs.move_in", full)
        with pytest.raises(BuildFailed, match="the disk is full") as failed:
            harness.builder.build(make_cell())
    assert failed.value.failure is FailureClass.DISK
    assert failed.value.retryable
    assert [path.name for path in harness.store.scratch.folder.iterdir()] == ["pins"]
    assert harness.builder.build(make_cell()).tree


def test_a_full_disk_while_the_package_is_put_together(
    harness: BuilderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("workers.store.store.place", full)
    cell = make_cell()
    with pytest.raises(BuildFailed, match="the disk is full"):
        harness.builder.build(cell)
    assert harness.packages() == []


@pytest.mark.parametrize(
    "text", ["RuntimeError: write failed: No space left on device", "Disk quota exceeded"]
)
def test_native_code_says_disk_full_in_its_own_words(harness: BuilderHarness, text: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise BuildFailed(FailureClass.EXPORT, "export", text)

    harness.host.run = fail  # type: ignore[assignment,method-assign]  # stands in for a bad engine
    with pytest.raises(BuildFailed) as failed:
        harness.builder.build(make_cell())
    assert failed.value.failure is FailureClass.DISK

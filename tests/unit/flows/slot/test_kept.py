"""Kept packages: the oldest lose their models, never their records."""

from __future__ import annotations

import os
from pathlib import Path

from flows.slot.cell_work import kept_bytes, trim


def package(root: Path, name: str, age: int) -> Path:
    folder = root / "package" / name
    (folder / "text").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"x" * 1000)
    (folder / "text" / "model.onnx").write_bytes(b"x" * 1000)
    for record in ("modelmill.json", "build.json"):
        (folder / record).write_text("{}", "utf-8")
    os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    return folder


def test_the_oldest_go_first_and_their_records_stay(tmp_path: Path) -> None:
    old, middle, new = (package(tmp_path, f"v{age}", age) for age in (30, 20, 10))
    trim(tmp_path, 4500)
    assert sorted(path.name for path in old.iterdir()) == ["build.json", "modelmill.json"]
    assert (middle / "model.onnx").exists()
    assert (new / "model.onnx").exists()
    trim(tmp_path, 0)
    assert (new / "build.json").exists()
    assert not list(tmp_path.rglob("*.onnx"))


def test_within_the_limit_nothing_is_touched(tmp_path: Path) -> None:
    package(tmp_path, "v1", 1)
    trim(tmp_path, 10_000)
    assert kept_bytes(tmp_path) == 2004
    trim(tmp_path / "absent", 0)
    assert kept_bytes(tmp_path / "absent") == 0

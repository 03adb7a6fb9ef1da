"""Datasets: their forms, and what is wrong with them in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.engine import StageError
from workers.optimum_engine import inputs
from workers.runtimes.session import Port
from workers.samples import datasets

WANTED = {"ids": Port("ids", "int64", ("batch_size", "sequence_length"))}


def test_datasets_in_both_forms(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"encoder/ids": np.zeros((5, 1, 4)), "decoder/x": np.ones(5)}
    np.savez(tmp_path / "a.npz", **arrays)
    found = datasets.read_dataset(tmp_path / "a.npz", "encoder", 2)
    assert [list(sample) for sample in found] == [["ids"], ["ids"]]
    lines = [json.dumps({"ids": [[1, 2]]}), "", json.dumps({"ids": [[3, 4]]})]
    (tmp_path / "b.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = datasets.read_dataset(tmp_path / "b.jsonl", "", 9)
    assert [sample["ids"].tolist() for sample in found] == [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.npz", b"", "cannot be read"),
        ("a.npz", b"PK\x03\x04rubbish", "cannot be read"),
        ("a.jsonl", b"", "has no sample"),
        ("a.jsonl", b"[1]", "line 1 is not an object"),
        ("a.jsonl", b'{"ids": ', "cannot be read"),
        ("a.jsonl", b"\xff\xfe", "cannot be read"),
        ("a.csv", b"1,2", "a dataset is a .npz or .jsonl file"),
    ],
)
def test_bad_datasets_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StageError, match=words) as raised:
        datasets.read_dataset(tmp_path / name, "", 8)
    assert raised.value.failure == "QUANTIZE"


def test_pickled_and_uneven_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"run": "me"}], dtype=object))
    np.savez(tmp_path / "b.npz", x=np.ones(3), y=np.ones(2))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(StageError):
            datasets.read_dataset(tmp_path / name, "", 8)


def test_a_dataset_must_fit_the_graph() -> None:
    fixed = {"pixels": Port("pixels", "float32", ("batch_size", 3))}
    assert datasets.fitted({"pixels": [[1, 2, 3]]}, fixed)["pixels"].dtype == np.float32
    with pytest.raises(StageError, match="not an input of the model"):
        datasets.fitted({"words": [1]}, WANTED)
    with pytest.raises(StageError, match=r"\[1, 4\]"):
        datasets.fitted({"pixels": [[1, 2, 3, 4]]}, fixed)
    with pytest.raises(StageError, match="takes"):
        datasets.fitted({"ids": [1, 2]}, WANTED)


def test_a_dataset_settles_the_sizes() -> None:
    assert inputs.sizes_of({"ids": np.ones((2, 7)), "other": np.ones(3)}, WANTED) == {
        "batch_size": 2,
        "sequence_length": 7,
    }

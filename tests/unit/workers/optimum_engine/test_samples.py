"""Sample files: the same bytes every time, and datasets that say what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.engine import StageError
from workers.optimum_engine import inputs
from workers.runtimes.session import Port
from workers.sources import samples

SETS = [{"ids": np.full((1, 4), n), "mask": np.ones((1, 4), bool)} for n in range(3)]
WANTED = {"ids": Port("ids", "int64", ("batch_size", "sequence_length"))}


def test_samples_come_back_and_repeat(tmp_path: Path) -> None:
    for name in ("one", "two"):
        samples.save(SETS, tmp_path / name)
    one, two = (tmp_path / name / samples.FILE for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    loaded = samples.load(tmp_path / "one")
    assert len(loaded) == 3
    assert loaded[2]["ids"].tolist() == [[2] * 4]
    assert loaded[0]["mask"].dtype == bool


def test_a_component_has_its_own_file(tmp_path: Path) -> None:
    samples.save(SETS, tmp_path / "encoder")
    assert len(samples.load(tmp_path, "encoder")) == len(samples.load(tmp_path / "encoder")) == 3


def test_datasets_in_both_forms(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"encoder/ids": np.zeros((5, 1, 4)), "decoder/x": np.ones(5)}
    np.savez(tmp_path / "a.npz", **arrays)
    found = samples.read_dataset(tmp_path / "a.npz", "encoder", 2)
    assert [list(sample) for sample in found] == [["ids"], ["ids"]]
    lines = [json.dumps({"ids": [[1, 2]]}), "", json.dumps({"ids": [[3, 4]]})]
    (tmp_path / "b.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = samples.read_dataset(tmp_path / "b.jsonl", "", 9)
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
        samples.read_dataset(tmp_path / name, "", 8)
    assert raised.value.failure == "QUANTIZE"


def test_pickled_and_uneven_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"run": "me"}], dtype=object))
    np.savez(tmp_path / "b.npz", x=np.ones(3), y=np.ones(2))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(StageError):
            samples.read_dataset(tmp_path / name, "", 8)


def test_a_dataset_must_fit_the_graph() -> None:
    fixed = {"pixels": Port("pixels", "float32", ("batch_size", 3))}
    assert samples.fitted({"pixels": [[1, 2, 3]]}, fixed)["pixels"].dtype == np.float32
    with pytest.raises(StageError, match="not an input of the model"):
        samples.fitted({"words": [1]}, WANTED)
    with pytest.raises(StageError, match=r"\[1, 4\]"):
        samples.fitted({"pixels": [[1, 2, 3, 4]]}, fixed)
    with pytest.raises(StageError, match="takes"):
        samples.fitted({"ids": [1, 2]}, WANTED)
    with pytest.raises(StageError, match="samples differ"):
        samples.check_even([{"ids": np.ones((1, 4))}, {"ids": np.ones((1, 5))}])


def test_a_dataset_settles_the_sizes() -> None:
    assert inputs.sizes_of({"ids": np.ones((2, 7)), "other": np.ones(3)}, WANTED) == {
        "batch_size": 2,
        "sequence_length": 7,
    }


def test_inputs_are_plausible() -> None:
    noise = np.random.default_rng(1).integers(0, 2, (2, 5))
    assert inputs.plausible("decoder_attention_mask", noise).all()
    assert inputs.plausible("position_ids", noise).tolist() == [[0, 1, 2, 3, 4]] * 2
    assert (inputs.plausible("input_ids", noise) == noise).all()

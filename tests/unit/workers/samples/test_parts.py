"""The three parts: their sizes by rule, no sample in two of them, and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.engine import StageError
from workers.samples import datasets, files, parts
from workers.samples.parts import CHOOSE, FIT, JUDGE, PARTS

GIB = 1024**3
SETS = [{"ids": np.full((1, 4), n), "mask": np.ones((1, 4), bool)} for n in range(5)]


USUAL = parts.sizes(parts.rule("fill-mask"), 0)


def test_sizes_follow_from_the_model() -> None:
    assert tuple(USUAL.values()) == (64, 8, 16)
    assert tuple(parts.sizes(parts.rule("fill-mask"), 2 * GIB).values()) == (32, 4, 8)
    for task, size in (("fill-mask", 7 * GIB), ("text-generation-with-past", GIB)):
        assert tuple(parts.sizes(parts.rule(task), size).values()) == (16, 4, 8)
    assert tuple(parts.sizes(parts.rule("text-generation-with-past"), 0).values()) == (32, 4, 8)
    assert tuple(parts.sizes(parts.rule("fill-mask", 128), 0).values()) == (128, 8, 16)


def test_large_samples_are_fewer_but_never_none() -> None:
    assert parts.bounded(USUAL, 3 * 224 * 224 * 4) == USUAL
    assert tuple(parts.bounded(USUAL, 3 * 2048 * 2048 * 4).values()) == (10, 4, 4)


@pytest.mark.parametrize("count", range(3, 88))
def test_fewer_samples_are_divided_in_proportion(count: int) -> None:
    found = parts.divided(count, USUAL)
    assert sum(found.values()) == count
    assert min(found.values()) >= 1
    assert found[FIT] >= found[JUDGE] >= found[CHOOSE] or count < 8


def test_no_sample_is_in_two_parts() -> None:
    made = [{"x": np.full(2, number % 11)} for number in range(30)]
    distinct = parts.distinct(made)
    assert [int(one["x"][0]) for one in distinct] == list(range(11))
    found = parts.cut(distinct, parts.divided(len(distinct), USUAL))
    digests = [parts.digest([one]) for part in PARTS for one in found[part]]
    assert len(digests) == len(set(digests)) == 11


def test_the_digest_knows_name_type_and_shape() -> None:
    zeros = np.zeros((2, 2), np.float32)
    others: list[dict[str, Any]] = [
        {"b": zeros}, {"a": zeros.astype(np.int32)}, {"a": zeros.reshape(4)}, {"a": zeros + 1},
    ]  # fmt: skip
    assert len({parts.digest([one]) for one in [{"a": zeros}, *others]}) == 5


def test_samples_come_back_and_repeat(tmp_path: Path) -> None:
    divided = {FIT: SETS[:3], CHOOSE: SETS[3:4], JUDGE: SETS[3:]}
    for name in ("one", "two"):
        files.save(divided, tmp_path / name)
    one, two = (
        [path.read_bytes() for path in sorted((tmp_path / name).rglob("*.npz"))]
        for name in ("one", "two")
    )
    assert one == two
    assert [path.name for path in files.judged(tmp_path / "one")] == ["00.npz", "01.npz"]
    for part in PARTS:
        loaded = files.load(tmp_path / "one", "", part)
        assert parts.digest(loaded) == parts.digest(divided[part])
        assert loaded[0]["mask"].dtype == bool
    told = files.facts({"": divided}, "dataset", "lines.npz", {"": {"mask": "synthetic"}})
    assert told["samples"]["parts"] == {"fit": 3, "choose": 1, "judge": 2}
    assert told["inputs"]["."]["ids"] == {
        "dtype": "int64", "shape": [1, 4], "kind": "dataset", "range": [0.0, 2.0]
    }  # fmt: skip
    assert told["inputs"]["."]["mask"]["kind"] == "synthetic"


def test_a_component_has_its_own_files(tmp_path: Path) -> None:
    files.save(dict.fromkeys(PARTS, SETS), tmp_path, "encoder")
    assert len(files.load(tmp_path, "encoder", FIT)) == 5
    assert len(files.load(tmp_path / "encoder", "encoder", JUDGE)) == 5  # a stage of the component


def test_samples_of_a_part_have_one_shape() -> None:
    with pytest.raises(StageError, match="samples differ"):
        files.check_even([{"ids": np.ones((1, 4))}, {"ids": np.ones((1, 5))}])


def test_an_input_without_axes_stays_an_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((3, 1, 2)), rate=np.array([8.0, 16.0, 22.0]))
    samples = datasets.read(tmp_path / "a.npz")
    files.save(dict.fromkeys(PARTS, samples), tmp_path / "parts")
    for found in (samples, *(files.load(tmp_path / "parts", "", part) for part in PARTS)):
        assert [type(one["rate"]) for one in found] == [np.ndarray] * 3
        assert [one["rate"].shape for one in found] == [()] * 3


@pytest.mark.parametrize("system", ["win32", "linux"])
def test_equal_arrays_are_equal_bytes_on_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    arrays: dict[str, Any] = {"b": np.arange(6, dtype=np.int64).reshape(2, 3), "a": np.float32(1.5)}
    monkeypatch.setattr("zipfile.sys.platform", "linux")
    np.savez(tmp_path / "numpy.npz", **dict(sorted(arrays.items())))
    monkeypatch.setattr("zipfile.sys.platform", system)
    files.write_arrays(tmp_path / "ours.npz", arrays)
    monkeypatch.undo()
    assert (tmp_path / "ours.npz").read_bytes() == (tmp_path / "numpy.npz").read_bytes()

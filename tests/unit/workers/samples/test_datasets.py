"""Datasets: their forms, and what is wrong with them in one line."""

from __future__ import annotations

import json
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.engine import StageError
from workers.samples import datasets, signals
from workers.samples.sources import Maker, kind_of, sizes_of, stated
from workers.session import Port

WANTED = {"ids": Port("ids", "int64", ("batch_size", "sequence_length"))}
LINES = [f"line {number}" for number in range(12)]


def opened(path: Path, limit: int = 88, **table: Any) -> datasets.Dataset:
    return datasets.opened({"path": str(path), **table}, limit)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = "\n".join(map(json.dumps, rows))
    path.write_text(text, encoding="utf-8")
    return path


def texts(path: Path, **table: Any) -> list[datasets.Texts]:
    found = opened(path, **table)
    assert found.form == "texts"
    return sorted(found.rows)


def pictures(folder: Path, count: int = 9) -> Path:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not on this machine")
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.full((6, 8, 3), number * 20, np.uint8)
        pixels[..., 0] = 255
        image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def sounds(folder: Path, count: int = 9, width: int = 2) -> Path:
    folder.mkdir()
    for number in range(count):
        values = np.full((8000, 2), (number + 1) * 1000, "<i2")
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(width)
            file.setframerate(8000)
            file.writeframes(values.tobytes())
    return folder


def test_tensors_in_all_forms(tmp_path: Path) -> None:
    ids = np.arange(48).reshape(12, 1, 4)
    arrays: dict[str, Any] = {"encoder/ids": ids, "decoder/x": np.ones(12)}
    np.savez(tmp_path / "a.npz", **arrays)
    write(tmp_path / "a.jsonl", [{"encoder/ids": one.tolist(), "label": "x"} for one in ids])
    rows = ["encoder/ids,label", *(f'"{one.tolist()}",yes' for one in ids)]
    (tmp_path / "a.csv").write_text("\n".join(rows), encoding="utf-8")
    for name in ("a.npz", "a.jsonl", "a.csv"):
        found = opened(tmp_path / name)
        assert (found.form, found.notice) == ("tensors", "")
        made = [datasets.fitted(row, WANTED, "encoder")["ids"].tolist() for row in found.rows]
        assert sorted(made) == ids.tolist()
        assert made != ids.tolist()  # sorted data serve all parts alike
    assert len(opened(tmp_path / "a.npz", samples=8).rows) == 8


def test_texts_in_all_forms(tmp_path: Path) -> None:
    usual = write(tmp_path / "a.jsonl", [{"sentence": one, "label": 1} for one in LINES])
    assert texts(usual) == sorted((one, None) for one in LINES)
    pairs = write(tmp_path / "b.jsonl", [{"premise": one, "hypothesis": "no"} for one in LINES])
    assert texts(pairs)[0] == ("line 0", "no")
    years = write(tmp_path / "e.jsonl", [{"text": str(one)} for one in range(1990, 2000)])
    assert texts(years)[0] == ("1990", None)
    asked = write(tmp_path / "c.jsonl", [{"context": one, "question": "who?"} for one in LINES])
    assert texts(asked)[0] == ("who?", "line 0")
    (tmp_path / "d.csv").write_text("\n".join(["note,n", *(f"{one},5" for one in LINES)]))
    assert texts(tmp_path / "d.csv", columns={"text": "note"})[0] == ("line 0", None)
    with pytest.raises(StageError, match="the columns n, note, none of them known") as raised:
        opened(tmp_path / "d.csv")
    assert raised.value.hint == 'columns = { text = "note" }'
    with pytest.raises(StageError, match="has no column 'notes'"):
        opened(tmp_path / "d.csv", columns={"text": "notes"})


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(StageError, match="needs pyarrow") as raised:
        opened(tmp_path / "a.parquet")
    assert raised.value.hint.endswith(" install pyarrow, or save it as .jsonl")


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not on this machine")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"text": LINES}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == sorted((one, None) for one in LINES)
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(StageError, match="cannot be read"):
        opened(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.npz", b"", "cannot be read: it is not a .npz archive"),
        ("a.npz", b"PK\x03\x04rubbish", "cannot be read: it is not a .npz archive"),
        ("a.jsonl", b"", "has no sample"),
        ("a.jsonl", b"[1]", "line 1 is not an object"),
        ("a.jsonl", b'{"ids": ', "cannot be read: line 1 is no JSON"),
        ("a.jsonl", b"\xff\xfe", "cannot be read: it is not a text in UTF-8"),
        ("a.csv", b"text\ncaf\xe9", "cannot be read: it is not a text in UTF-8"),
        ("a.jsonl", b'{"text": null}', "row 1 has no text in the column 'text'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ""}', "row 2 has no text in the column 'text'"),
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}', "row 2 has no text in the column 'text'"),
        (
            "a.jsonl",
            b'{"x": 1}\n{"x": "b"}',
            "'b' in column 'x' is neither a number nor a list",
        ),
        ("a.csv", b"x\n1,2", "row 1 has fewer or more cells than the first line"),
        ("a.csv", b"", "has no sample"),
        ("a.jsonl", b'{"text": "a"}', "has 1 different sample, at least 8 are needed"),
        ("a.jsonl", b'{"x": 1}\n' * 20, "has 1 different sample, at least 8 are needed"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StageError, match=words) as raised:
        opened(tmp_path / name)
    assert raised.value.failure == "QUANTIZE"
    assert "\n" not in str(raised.value)


def test_pickled_and_uneven_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"run": "me"}], dtype=object))
    np.savez(tmp_path / "b.npz", x=np.ones(3), y=np.ones(2))
    for name, words in {
        "a.npz": "it has an array that does not hold plain numbers",
        "b.npz": "its arrays need the same number of samples",
        "none.npz": "No such file or directory",
    }.items():
        with pytest.raises(StageError, match=f"{name} cannot be read: {words}"):
            opened(tmp_path / name)


def test_an_empty_folder_and_values_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageError, match=r"empty cannot be read: it holds no \.png") as raised:
        datasets.dataset_params({"path": str(tmp_path / "empty")}, 88)
    assert raised.value.failure == "QUANTIZE"
    wanted = {"x": Port("x", "float32", (1, 2))}
    with pytest.raises(StageError, match=r"'x' contains NaN"):
        datasets.fitted({"x": [[1.0, float("nan")]]}, wanted)


def test_duplicates_are_left_out_with_a_notice(tmp_path: Path) -> None:
    rows = [{"text": one, "id": number} for number, one in enumerate([*LINES, *LINES[:3]])]
    found = opened(write(tmp_path / "a.jsonl", rows))
    assert (len(found.rows), found.notice) == (12, "the dataset a.jsonl: 3 duplicates are left out")


def test_a_folder_is_its_own_files(tmp_path: Path) -> None:
    folder = sounds(tmp_path / "sounds")
    found = opened(folder)
    assert (found.form, len(found.rows)) == ("sounds", 9)
    elsewhere = sounds(tmp_path / "elsewhere", 1)
    try:
        (folder / "secret.wav").symlink_to(elsewhere / "0.wav")
        (folder / "more").symlink_to(elsewhere, target_is_directory=True)
    except OSError:
        pytest.skip("links need a privilege here")
    assert [one.name for one in opened(folder).rows] == [one.name for one in found.rows]
    (folder / "a.png").write_bytes(b"x")
    with pytest.raises(StageError, match="holds both images and sounds"):
        opened(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageError, match=r"holds no \.png"):
        opened(tmp_path / "empty")


def test_a_key_holds_the_files_that_are_used(tmp_path: Path) -> None:
    folder = sounds(tmp_path / "sounds", 12)

    def key() -> dict[str, Any]:
        return datasets.dataset_params({"path": str(folder), "rate": 8000}, 8)

    before, used = key(), {one.name for one in opened(folder, 8).rows}
    assert before.keys() == {"rate", "sha256"}
    unused = next(one for one in sorted(folder.iterdir()) if one.name not in used)
    unused.write_bytes(b"other")
    assert key() == before
    (folder / min(used)).write_bytes(b"other")
    assert key() != before


def test_values_must_fit_the_graph() -> None:
    fixed = {"pixels": Port("pixels", "float32", ("batch_size", 3))}
    assert datasets.fitted({"pixels": [[1, 2, 3]]}, fixed)["pixels"].dtype == np.float32
    assert datasets.fitted({"pixels": [1, 2, 3], "label": 1}, fixed)["pixels"].shape == (1, 3)
    with pytest.raises(StageError, match="not an input of the model"):
        datasets.fitted({"words": [1]}, WANTED)
    with pytest.raises(StageError, match=r"\[1, 4\]"):
        datasets.fitted({"pixels": [[1, 2, 3, 4]]}, fixed)
    with pytest.raises(StageError, match="'ids' is no int64"):
        datasets.fitted({"ids": ["a"]}, WANTED)


def make(wanted: Any, sizes: Any, number: int) -> dict[str, Any]:
    """Synthetic values that nobody could take for given ones."""
    shape = (sizes.get("batch_size", 1), sizes.get("sequence_length", 3))
    return {name: np.full(shape, 90 + number, port.dtype) for name, port in wanted.items()}


def test_a_users_tensors_decide_sizes_and_masks() -> None:
    ids = np.array([[5, 6, 0, 7, 0, 0, 0]])
    given = {"input_ids": ids}
    names = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    wanted = {name: Port(name, "int64", ("batch_size", "sequence_length")) for name in names}
    assert sizes_of(given, wanted) == {"batch_size": 1, "sequence_length": 7}

    class Config:
        pad_token_id = 0

    dataset = datasets.Dataset("a.npz", "tensors", [given] * 8, {})
    maker = Maker(Path(), "fill-mask", Config(), {}, {"": make}, dataset)
    source = maker.source("", wanted)
    made = source.sample(0)
    assert made["input_ids"].tolist() == ids.tolist()
    assert made["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0]]
    assert not made["token_type_ids"].any()
    assert made["position_ids"].tolist() == [list(range(7))]
    assert (source.count, kind_of(source.kinds)) == (8, "dataset")


def test_the_weakest_content_is_the_kind() -> None:
    assert kind_of({"input_ids": "processor", "attention_mask": "synthetic"}) == "processor"
    assert kind_of({"input_ids": "processor", "bbox": "synthetic"}) == "synthetic"
    assert kind_of({"attention_mask": "dataset"}) == "dataset"


def test_sounds_are_read_at_the_rate_that_is_asked_for(tmp_path: Path) -> None:
    file = sounds(tmp_path / "sounds", 1) / "0.wav"
    found = datasets.sound(file, 16000, 0.5)
    assert found.shape == (8000,)
    assert np.allclose(found, 1000 / 32768)
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(StageError, match=r"a\.wav in the dataset cannot be read as a sound"):
        datasets.sound(tmp_path / "a.wav", 16000, 1.0)


@pytest.mark.parametrize(
    ("shape", "dtype", "check"),
    [
        ((1, 3, 4, 4), "float32", lambda one: (one.max(), one.shape[1]) == (1.0, 3)),
        ((1, 4, 4, 3), "uint8", lambda one: one.max() == 255),
        ((1, 1, 4, 4), "float32", lambda one: one.max() < 1),
    ],
)
def test_images_for_a_ready_file(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, check: Callable[[Any], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(signals, "is_picture", lambda shape: len(shape) == 4)
    dataset = opened(pictures(tmp_path / "a"))
    real = stated(dataset, {"x": Port("x", dtype, shape)})
    assert real is not None
    made = real.sample(0)["x"]
    assert (made.shape, str(made.dtype), real.count) == (shape, dtype, 9)
    assert check(made)


def test_images_are_normalized_as_stated(tmp_path: Path) -> None:
    dataset = opened(pictures(tmp_path / "a"), mean=[1, 0, 0], std=[0.5, 1, 1], channels="bgr")
    wanted = {"x": Port("x", "float32", (3, 3, 16, 16)), "scale": Port("scale", "float32", (1, 2))}
    real = stated(dataset, wanted)
    assert real is not None
    assert real.kinds == {"x": "dataset"}
    assert real.count == 3
    made = real.sample(0)["x"]
    assert made[0, 2].max() == made[0, 2].min() == 1.0  # red is last now
    assert made[0, 0].max() <= 0
    assert stated(dataset, {"ids": Port("ids", "int64", (1, 8))}) is None


def test_sounds_for_a_ready_file(tmp_path: Path) -> None:
    dataset = opened(sounds(tmp_path / "a"), rate=8000)
    real = stated(dataset, {"wave": Port("wave", "float32", (1, 12000))})
    assert real is not None
    made = real.sample(0)["wave"]
    assert made[0, :8000].all()
    assert not made[0, 8000:].any()  # silence

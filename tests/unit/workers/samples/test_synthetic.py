"""Synthetic samples: what their values must have for a calibration and a verdict on them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workers.engine import StageError
from workers.samples import synthetic
from workers.session import Port

COUNT = 24
TEXT = ("batch_size", "sequence_length")
BERT = SimpleNamespace(vocab_size=300, type_vocab_size=2, pad_token_id=0, eos_token_id=None)


def samples(wanted: dict[str, tuple[str, Any]], config: Any = None) -> list[dict[str, Any]]:
    ports = {name: Port(name, dtype, shape) for name, (dtype, shape) in wanted.items()}
    return [synthetic.sample(ports, {}, config, number) for number in range(COUNT)]


def test_masks_hide_something_in_some_samples_and_nothing_in_others() -> None:
    wanted = {
        "input_ids": ("int64", TEXT),
        "attention_mask": ("int64", TEXT),
        "pixel_mask": ("int64", (1, 32, 48)),
        "pixel_values": ("float32", (1, 3, 32, 48)),
    }
    made = samples(wanted, BERT)
    for name in ("attention_mask", "pixel_mask"):
        shares = [one[name].mean() for one in made]
        assert shares.count(1) >= COUNT // 3
        assert len({share for share in shares if share < 1}) >= 4
        assert min(shares) > 0
    for one in made:
        assert (np.diff(one["attention_mask"]) <= 0).all()  # padding is behind the text
        assert ((one["input_ids"] == 0) == (one["attention_mask"] == 0)).all()


def test_an_added_mask_hides_by_a_large_number() -> None:
    made = samples({"attention_mask": ("float32", (1, 1, 8, 8))})
    assert {float(one["attention_mask"].min()) for one in made} == {0.0, -10000.0}
    assert {float(one["attention_mask"].max()) for one in made} == {0.0}


def test_tokens_are_within_the_vocabulary_and_as_frequent_as_in_texts() -> None:
    made = samples({"input_ids": ("int64", (1, 512))}, BERT)
    ids = np.concatenate([one["input_ids"].ravel() for one in made])
    assert ids.min() >= 8
    assert ids.max() < 300
    assert (ids < 30).mean() > 0.4
    assert len(np.unique(ids)) > 200


def test_both_token_types_are_used_where_the_model_has_both() -> None:
    wanted = {"input_ids": ("int64", TEXT), "token_type_ids": ("int64", TEXT)}
    made = samples(wanted, BERT)
    second = [one["token_type_ids"].any() for one in made]
    assert 0 < sum(second) < COUNT
    one_type = SimpleNamespace(vocab_size=300, type_vocab_size=1)
    assert not any(one["token_type_ids"].any() for one in samples(wanted, one_type))


@pytest.mark.parametrize(
    "shape", [(1, 3, 64, 64), (1, 64, 64, 3), (1, 4, 3, 32, 32), (1, 1, 48, 48)]
)
def test_pixels_have_the_range_and_the_smoothness_of_normalized_photographs(shape: Any) -> None:
    for name in ("pixel_values", "x"):
        made = np.stack([one[name] for one in samples({name: ("float32", shape)})])
        assert made.min() < -1.8
        assert made.max() > 2.2
        columns = made if shape[-1] != 3 else np.moveaxis(made, -1, 1)
        near = np.abs(np.diff(columns, axis=-1)).mean()
        assert near < 0.4 * columns.std()  # neighbours are alike, unlike noise (1.1)


def test_images_of_bytes_use_all_of_them() -> None:
    made = np.stack([one["image"] for one in samples({"image": ("uint8", (1, 48, 48, 3))})])
    assert made.min() == 0
    assert made.max() == 255


def test_sounds_are_waves_and_their_features_are_centered() -> None:
    wanted = {"input_values": ("float32", (1, 8000)), "input_features": ("float32", (1, 80, 200))}
    made = samples(wanted)
    waves = np.stack([one["input_values"] for one in made])
    assert abs(waves).max() <= 1
    assert abs(waves).max() > 0.5
    assert len({round(float(wave.std()), 4) for wave in waves}) > COUNT // 2
    for one in made:
        assert abs(one["input_features"].mean()) < 0.01
        assert 0.5 < one["input_features"].std() < 1.5


def test_every_kind_of_input_differs_between_samples() -> None:
    wanted = {
        "input_ids": ("int64", (1, 16)),
        "pixel_values": ("float32", (1, 3, 16, 16)),
        "past_values": ("float32", (1, 32, 2)),
        "states": ("float32", (1, 20, 17)),
        "bbox": ("int64", (1, 16, 4)),
        "boxes": ("float32", (1, 4, 4)),
        "flattened_patches": ("float32", (1, 16, 770)),
        "state": ("float32", (2, 1, 128)),
        "anything": ("float32", (1, 7)),
    }
    made = samples(wanted)
    for name in wanted:
        digests = {one[name].tobytes() for one in made}
        assert len(digests) == COUNT, name
    for one in made:
        for name in ("bbox", "boxes"):
            left, top, right, bottom = np.moveaxis(one[name], -1, 0)
            assert (right > left).all()
            assert (bottom > top).all()
        assert one["bbox"].max() <= 1000
        assert one["bbox"].min() >= 0


def test_what_follows_from_other_inputs() -> None:
    wanted = {
        "image": ("float32", (1, 3, 64, 96)),
        "im_shape": ("float32", (1, 2)),
        "sr": ("int64", ()),
        "position_ids": ("int64", TEXT),
        "timestep": ("int64", (1,)),
        "x": ("int64", (1, 40)),
        "x_lengths": ("int64", (1,)),
    }
    made = samples(wanted)
    for one in made:
        assert one["im_shape"].tolist() == [[64, 96]]
        assert one["sr"] == 16000
        assert one["position_ids"][0, :3].tolist() == [0, 1, 2]
        assert 0 <= one["timestep"][0] < 1000


def test_a_classifier_finds_the_end_of_a_text() -> None:
    config = SimpleNamespace(vocab_size=50, eos_token_id=2, pad_token_id=1, is_encoder_decoder=True)
    wanted = {"input_ids": ("int64", TEXT), "attention_mask": ("int64", TEXT)}
    for one in samples(wanted, config):
        last = int(one["attention_mask"].sum()) - 1
        assert np.flatnonzero(one["input_ids"][0] == 2).tolist() == [last]


def test_the_generator_of_the_model_gives_shapes_and_what_is_unknown() -> None:
    given = {"input_ids": np.full((2, 9), 5), "xpath_tags_seq": np.full((2, 9, 50), 216)}
    ports = {name: Port(name, "int64", (None,) * one.ndim) for name, one in given.items()}
    made = synthetic.sample(ports, {}, BERT, 3, given)
    assert made["input_ids"].shape == (2, 9)
    assert not (made["input_ids"] == 5).all()
    assert (made["xpath_tags_seq"] == 216).all()


def test_the_places_of_an_image_in_a_text_are_kept_and_seen() -> None:
    text = np.full((1, 40), 9)
    text[:, 1:21] = 44
    given = {"input_ids": text, "attention_mask": np.ones((1, 40), np.int64)}
    ports = {name: Port(name, "int64", (None, None)) for name in given}
    config = SimpleNamespace(vocab_size=50, image_token_id=44, pad_token_id=0)
    for number in range(COUNT):
        made = synthetic.sample(ports, {}, config, number, given)
        assert np.flatnonzero(made["input_ids"][0] == 44).tolist() == list(range(1, 21))
        assert made["attention_mask"][0, :21].all()


def test_an_input_of_strings_needs_a_dataset() -> None:
    with pytest.raises(StageError, match="no values can be made"):
        samples({"text": ("object", (1,))})

"""Real samples: tokenizers, image processors and feature extractors beside a model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.processors import byte_pairs, processor, unigram, wordpiece
from tests.services.installing import lacking
from workers.engine import StageError
from workers.samples import processors
from workers.samples.material import texts
from workers.session import Port

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]

COUNT = 88
IDS = ("int64", ("batch_size", "sequence_length"))
TEXT = {"input_ids": IDS, "attention_mask": IDS}
PAIRS = {**TEXT, "token_type_ids": IDS}
PIXELS = ("float32", ("batch_size", "num_channels", "height", "width"))
MASKED = {"pixel_values": PIXELS, "pixel_mask": ("int64", ("batch_size", "height", "width"))}
Wanted = Mapping[str, tuple[str, tuple[int | str, ...]]]


def config(kind: str, **settings: Any) -> Any:
    import transformers

    return getattr(transformers, kind)(**settings)


def real(folder: Path, task: str, of: Any, wanted: Wanted, **sizes: int) -> Any:
    ports = {name: Port(name, dtype, shape) for name, (dtype, shape) in wanted.items()}
    found = processors.real(folder, task, of, ports, {"batch_size": 1, **sizes}, notice=pytest.fail)
    assert found is not None
    assert set(found.kinds.values()) == {"processor"}
    return found


def samples(found: Any, count: int = COUNT) -> list[dict[str, Any]]:
    return [found.sample(number) for number in range(count)]


def pictures() -> None:
    if find_spec("PIL") is None:
        lacking("Pillow")


@pytest.mark.parametrize(
    "task", ["feature-extraction", "fill-mask", "question-answering", "text-classification"]
)
@pytest.mark.parametrize("length", [32, 128])
def test_texts_are_padded_cut_and_all_different(tmp_path: Path, task: str, length: int) -> None:
    found = real(wordpiece(tmp_path), task, config("BertConfig"), PAIRS, sequence_length=length)
    made = samples(found)
    filled = [int(one["attention_mask"].sum()) for one in made]
    assert len({one["input_ids"].tobytes() for one in made}) == COUNT
    for part in (made[:64], made[64:72], made[72:]):  # fit, choose, judge
        hidden = [not one["attention_mask"].all() for one in part]
        assert any(hidden)
        assert not all(hidden)
        assert any(one["token_type_ids"].any() for one in part)
    assert len(set(filled)) > 5
    assert min(filled) < 0.75 * length
    for one in made:
        assert ((one["input_ids"] == 0) == (one["attention_mask"] == 0)).all()
        assert one["input_ids"].dtype == np.int64
        assert one["input_ids"].shape == (1, length)
        mask_token = (one["input_ids"] == 4).sum()
        assert mask_token == (task == "fill-mask" and one["attention_mask"].sum() > 2)


def test_a_question_is_never_cut_and_its_text_has_the_other_type(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(wordpiece(tmp_path)))
    made = samples(
        real(tmp_path, "question-answering", config("BertConfig"), PAIRS, sequence_length=64)
    )
    for number, one in enumerate(made):
        first = one["input_ids"][(one["token_type_ids"] == 0) & (one["attention_mask"] == 1)]
        asked = tokenizer(texts.question(number)[0])["input_ids"]
        assert first.tolist() == asked
        assert one["token_type_ids"].sum() > 4


def test_the_same_bytes_come_in_any_order(tmp_path: Path) -> None:
    of = config("BertConfig")
    first = real(wordpiece(tmp_path), "fill-mask", of, PAIRS, sequence_length=32)
    again = real(tmp_path, "fill-mask", of, PAIRS, sequence_length=32)
    for number in (7, 3, 50):
        one, other = first.sample(number), again.sample(number)
        assert {name: value.tobytes() for name, value in one.items()} == {
            name: value.tobytes() for name, value in other.items()
        }


def test_choices_have_an_axis_of_their_own(tmp_path: Path) -> None:
    axes = ("batch_size", "num_choices", "sequence_length")
    wanted: Wanted = dict.fromkeys(PAIRS, ("int64", axes))
    found = real(
        wordpiece(tmp_path), "multiple-choice", config("BertConfig"), wanted,
        batch_size=2, num_choices=4, sequence_length=48,
    )  # fmt: skip
    made = found.sample(5)
    assert made["input_ids"].shape == (2, 4, 48)
    starts = made["input_ids"][made["token_type_ids"] == 0]
    assert len({row.tobytes() for row in made["input_ids"].reshape(8, -1)}) == 8
    assert starts.size


def test_a_prompt_is_padded_on_the_side_of_the_tokenizer(tmp_path: Path) -> None:
    wanted: Wanted = {**TEXT, "position_ids": IDS}
    of = config("GPT2Config", vocab_size=1000)
    for side in ("right", "left"):
        found = real(
            byte_pairs(tmp_path / side, side=side), "text-generation-with-past", of, wanted,
            sequence_length=128,
        )  # fmt: skip
        padded = [one for one in samples(found) if not one["attention_mask"].all()]
        assert len(padded) > COUNT // 2
        for one in padded:
            mask, positions = one["attention_mask"][0], one["position_ids"][0]
            assert mask[0] == (side == "right")
            assert positions[mask > 0].tolist() == list(range(mask.sum()))


def test_a_chat_model_is_asked_as_its_template_says(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    of = config("GPT2Config", vocab_size=1000)
    found = real(byte_pairs(tmp_path), "text-generation", of, TEXT, sequence_length=256)
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path))
    told = [tokenizer.decode(one["input_ids"][0][one["attention_mask"][0] > 0])
            for one in samples(found, 16)]  # fmt: skip
    assert sum(text.startswith("<user>") for text in told) >= 8
    assert any("<assistant>" in text[:-11] for text in told)  # an earlier answer
    plain = real(
        byte_pairs(tmp_path / "plain", chat=False), "text-generation", of, TEXT, sequence_length=64
    )
    assert plain.sample(1)["input_ids"].shape == (1, 64)


def test_a_decoder_begins_with_its_token_and_takes_the_mask_of_the_encoder(tmp_path: Path) -> None:
    read, width = ("batch_size", "encoder_sequence_length"), 64
    sizes = {"sequence_length": 48, "encoder_sequence_length": 48, "decoder_sequence_length": 12}
    prefix = {"translation": {"prefix": "translate English to German: "}}
    of = config("T5Config", vocab_size=1000, decoder_start_token_id=0, task_specific_params=prefix)
    encoder = real(unigram(tmp_path), "text2text-generation", of, TEXT, **sizes)
    wanted: Wanted = {
        "input_ids": ("int64", ("batch_size", "decoder_sequence_length")),
        "encoder_attention_mask": ("int64", read),
        "encoder_hidden_states": ("float32", (*read, width)),
    }
    decoder = real(tmp_path, "text2text-generation", of, wanted, **sizes)
    assert "encoder_hidden_states" not in decoder.kinds
    beginnings = set()
    for number in range(COUNT):
        source, target = encoder.sample(number), decoder.sample(number)
        assert (target["encoder_attention_mask"] == source["attention_mask"]).all()
        assert target["input_ids"].shape == (1, 12)
        assert target["input_ids"][0, 0] == 0
        assert (target["input_ids"][0, 1:] != 0).all()  # nothing hides padding here
        beginnings.add(source["input_ids"][0, :5].tobytes())
    assert len(beginnings) == 1


@pytest.mark.parametrize("kind", ["LayoutLM", "LayoutLMv2", "Bros"])
@pytest.mark.parametrize("task", ["token-classification", "question-answering"])
def test_words_of_a_page_have_boxes(tmp_path: Path, kind: str, task: str) -> None:
    import transformers

    wordpiece(tmp_path)
    if kind == "LayoutLMv2":
        made = transformers.AutoTokenizer.from_pretrained(str(tmp_path)).get_vocab()
        lines = sorted(made, key=lambda token: int(made[token]))
        (tmp_path / "vocab.txt").write_text("\n".join(lines), "utf-8", newline="\n")
        (tmp_path / "tokenizer.json").unlink()
        found = transformers.LayoutLMv2TokenizerFast(vocab_file=str(tmp_path / "vocab.txt"))
        found.save_pretrained(str(tmp_path))
    wanted: Wanted = {**TEXT, "bbox": ("int64", (*IDS[1], 4))}
    if kind == "Bros":
        wanted = {**TEXT, "bbox": ("float32", (*IDS[1], 4))}
    of = config(f"{kind}Config")
    made = samples(real(tmp_path, task, of, wanted, sequence_length=48), 12)
    most = 1 if kind == "Bros" else 1000
    for one in made:
        boxes, mask = one["bbox"], one["attention_mask"]
        assert (boxes[mask == 0] == 0).all()
        left, top, right, bottom = np.moveaxis(boxes[mask == 1], -1, 0)
        assert (right >= left).all()
        assert (bottom >= top).all()
        assert most / 10 < boxes.max() <= most
        assert len(np.unique(boxes.reshape(-1, 4), axis=0)) > 2


def test_the_texts_of_a_judge_of_statements_are_pairs(tmp_path: Path) -> None:
    of = config("BertConfig", id2label={0: "entailment", 1: "neutral", 2: "contradiction"})
    found = real(wordpiece(tmp_path), "text-classification", of, PAIRS, sequence_length=64)
    assert all(one["token_type_ids"].any() for one in samples(found))


def test_a_text_with_an_image_has_the_places_of_its_features(tmp_path: Path) -> None:
    wanted: Wanted = {**TEXT, "image_features": ("float32", (20, 32))}
    of = config("LlavaConfig", image_token_index=699)
    found = real(byte_pairs(tmp_path), "image-text-to-text", of, wanted, sequence_length=64)
    for one in samples(found, 16):
        places = np.flatnonzero(one["input_ids"][0] == 699)
        assert places.tolist() == list(range(1, 21))
        assert one["attention_mask"][0, :21].all()


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        real(wordpiece(tmp_path), "fill-mask", config("BertConfig", vocab_size=500), TEXT)
    assert str(caught.value) == "tokenizer.json makes the token 799, but the model has 500 tokens"
    assert "tokenizer of this model" in caught.value.hint


@pytest.mark.parametrize("kind", ["ByT5", "Canine", "Perceiver"])
def test_a_tokenizer_without_a_vocabulary_needs_no_file(tmp_path: Path, kind: str) -> None:
    import transformers

    getattr(transformers, f"{kind}Tokenizer")().save_pretrained(str(tmp_path))
    of = config({"ByT5": "T5Config"}.get(kind, f"{kind}Config"))
    made = samples(real(tmp_path, "feature-extraction", of, TEXT, sequence_length=64), 8)
    assert len({one["input_ids"].tobytes() for one in made}) == 8


def test_nothing_beside_a_model_makes_nothing(tmp_path: Path) -> None:
    of = config("BertConfig")
    of.save_pretrained(str(tmp_path))
    ports = {name: Port(name, *one) for name, one in TEXT.items()}
    assert processors.real(tmp_path, "fill-mask", of, ports, {}) is None


def test_what_cannot_be_used_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    (tmp_path / "preprocessor_config.json").write_text("[", "utf-8")
    ports = {name: Port(name, *one) for name, one in {**TEXT, **MASKED}.items()}
    told: list[str] = []
    of = config("ViltConfig")
    found = processors.real(tmp_path, "fill-mask", of, ports, {}, notice=told.append)
    assert found is None
    assert len(told) == 1
    assert told[0].startswith("tokenizer.json cannot be used here: ")
    assert "\n" not in told[0]


@pytest.mark.parametrize(
    ("kind", "of", "side", "settings"),
    [
        ("ViTImageProcessor", "ViTConfig", 224, {}),
        ("CLIPImageProcessor", "CLIPConfig", 224, {}),
        ("ConvNextImageProcessor", "ConvNextConfig", 224, {"size": {"shortest_edge": 224}}),
        (
            "SegformerImageProcessor",
            "SegformerConfig",
            256,
            {"size": {"height": 256, "width": 256}},
        ),
        ("DPTImageProcessor", "DPTConfig", 192, {}),
        ("GLPNImageProcessor", "GLPNConfig", 128, {}),
        ("YolosImageProcessor", "YolosConfig", 160, {}),
        ("LayoutLMv2ImageProcessor", "LayoutLMv2Config", 224, {"apply_ocr": True}),
    ],
)
def test_pictures_come_as_the_processor_makes_them(
    tmp_path: Path, kind: str, of: str, side: int, settings: dict[str, Any]
) -> None:
    pictures()
    found = real(
        processor(tmp_path, kind, **settings), "image-classification", config(of),
        {"pixel_values": PIXELS}, height=side, width=side,
    )  # fmt: skip
    made = np.concatenate([found.sample(number)["pixel_values"] for number in range(12)])
    assert made.shape == (12, 3, side, side)
    assert len({one.tobytes() for one in made}) == 12
    low, high = found_range(tmp_path)
    assert made.min() < low + 0.1 * (high - low)
    assert made.max() > high - 0.1 * (high - low)
    assert made.min() >= low - 1e-5
    assert made.max() <= high + 1e-5


def found_range(folder: Path) -> tuple[float, float]:
    """The range that a processor can make."""
    import json

    told = json.loads((folder / "preprocessor_config.json").read_bytes())
    high = 1.0 if told.get("do_rescale") else 255.0
    if not told.get("do_normalize"):
        return 0.0, high
    mean, deviation = np.array(told["image_mean"]), np.array(told["image_std"])
    return float(((0 - mean) / deviation).min()), float(((high - mean) / deviation).max())


def test_pictures_of_another_aspect_are_padded_and_masked(tmp_path: Path) -> None:
    pictures()
    found = real(
        processor(tmp_path, "DetrImageProcessor"), "object-detection", config("DetrConfig"),
        MASKED, height=96, width=96,
    )  # fmt: skip
    shares = []
    for one in samples(found, 16):
        hidden = one["pixel_mask"][0] == 0
        assert (one["pixel_values"][0, :, hidden] == 0).all()
        shares.append(float(hidden.mean()))
    assert 0 in shares
    assert len({share for share in shares if share}) >= 3


@pytest.mark.parametrize(
    ("kind", "of", "shape"),
    [
        ("VideoMAEImageProcessor", "VideoMAEConfig", (1, 16, 3, 224, 224)),
        ("LlavaNextImageProcessor", "LlavaNextConfig", (1, 2, 3, 56, 56)),
        ("Idefics3ImageProcessor", "Idefics3Config", (1, 1, 3, 64, 64)),
        ("Qwen2VLImageProcessor", "Qwen2VLConfig", (16, 1176)),
    ],
)
def test_clips_tiles_and_patches(
    tmp_path: Path, kind: str, of: str, shape: tuple[int, ...]
) -> None:
    pictures()
    wanted: Wanted = {"pixel_values": ("float32", shape)}
    made = samples(real(processor(tmp_path, kind), "feature-extraction", config(of), wanted), 4)
    assert {one["pixel_values"].shape for one in made} == {shape}
    assert len({one["pixel_values"].tobytes() for one in made}) == 4


def test_patches_of_a_page(tmp_path: Path) -> None:
    pictures()
    wanted: Wanted = {
        "flattened_patches": ("float32", (1, 64, 770)),
        "attention_mask": ("float32", (1, 64)),
    }
    folder = processor(tmp_path, "Pix2StructImageProcessor")
    made = samples(real(folder, "image-to-text", config("Pix2StructConfig"), wanted), 4)
    assert len({one["flattened_patches"].tobytes() for one in made}) == 4


@pytest.mark.parametrize("size", [[32, 128], 64])
def test_a_size_may_have_two_sides(tmp_path: Path, size: Any) -> None:
    pictures()
    high, wide = size if isinstance(size, list) else (size, size)
    folder = processor(tmp_path, "ViTImageProcessor", size={"height": high, "width": wide})
    wanted: Wanted = {"pixel_values": PIXELS}
    of = config("ViTConfig", image_size=size)
    found = real(folder, "image-classification", of, wanted, height=high, width=wide)
    assert found.sample(0)["pixel_values"].shape == (1, 3, high, wide)


def test_an_image_processor_of_another_model_is_refused(tmp_path: Path) -> None:
    pictures()
    folder = processor(tmp_path, "ViTImageProcessor", size={"height": 384, "width": 384})
    wanted: Wanted = {"pixel_values": PIXELS}
    with pytest.raises(StageError) as caught:
        real(folder, "image-classification", config("ViTConfig"), wanted, height=384, width=384)
    assert str(caught.value) == (
        "preprocessor_config.json makes images of 384 x 384 pixels, but the model takes 224 x 224"
    )
    assert "image processor of this model" in caught.value.hint


WAVE = {name: (dtype, ("batch_size", "audio_sequence_length")) for name, dtype in
        (("input_values", "float32"), ("attention_mask", "int64"))}  # fmt: skip


def test_waves_are_normalized_padded_and_masked(tmp_path: Path) -> None:
    folder = processor(tmp_path, "Wav2Vec2FeatureExtractor", return_attention_mask=True)
    found = real(
        folder, "audio-classification", config("Wav2Vec2Config"), WAVE, audio_sequence_length=8000
    )
    made = samples(found, 16)
    assert len({one["input_values"].tobytes() for one in made}) == 16
    shares = [float(one["attention_mask"].mean()) for one in made]
    assert shares.count(1) == 8
    assert len(set(shares)) > 4
    for one in made:
        heard = one["input_values"][one["attention_mask"] > 0]
        assert abs(float(heard.mean())) < 1e-3
        assert abs(float(heard.std()) - 1) < 1e-2
        assert (one["input_values"][one["attention_mask"] == 0] == 0).all()


@pytest.mark.parametrize(
    ("kind", "of", "name", "shape"),
    [
        ("WhisperFeatureExtractor", "WhisperConfig", "input_features", (1, 80, 3000)),
        ("ASTFeatureExtractor", "ASTConfig", "input_values", (1, 1024, 128)),
        ("Speech2TextFeatureExtractor", "Speech2TextConfig", "input_features", (1, 200, 80)),
        ("SeamlessM4TFeatureExtractor", "SeamlessM4TConfig", "input_features", (1, 100, 160)),
        ("EncodecFeatureExtractor", "EncodecConfig", "input_values", (1, 1, 12000)),
    ],
)
def test_features_of_sounds(
    tmp_path: Path, kind: str, of: str, name: str, shape: tuple[int, ...]
) -> None:
    wanted: Wanted = {name: ("float32", shape)}
    made = samples(real(processor(tmp_path, kind), "audio-classification", config(of), wanted), 4)
    assert {one[name].shape for one in made} == {shape}
    assert len({one[name].tobytes() for one in made}) == 4
    for one in made:
        assert (one[name] * 4096 % 1 == 0).all()  # the same on every processor
        assert one[name].std() > 0


@pytest.mark.parametrize(
    ("kind", "of", "settings", "wanted", "text"),
    [
        (
            "WhisperFeatureExtractor", "WhisperConfig", {"feature_size": 128},
            {"input_features": ("float32", (1, 80, 3000))},
            "makes 128 x 3000 values of a sound, but the model takes 80 x 3000",
        ),
        (
            "EncodecFeatureExtractor", "EncodecConfig", {"sampling_rate": 32000},
            {"input_values": ("float32", (1, 1, 12000))},
            "makes sounds of 32000 Hz, but the model takes 24000 Hz",
        ),
    ],
)  # fmt: skip
def test_a_feature_extractor_of_another_model_is_refused(
    tmp_path: Path, kind: str, of: str, settings: dict[str, Any], wanted: Wanted, text: str
) -> None:
    folder = processor(tmp_path, kind, **settings)
    with pytest.raises(StageError) as caught:
        real(folder, "audio-classification", config(of), wanted).sample(0)
    assert str(caught.value) == f"preprocessor_config.json {text}"
    assert "feature extractor of this model" in caught.value.hint


def test_text_and_image_of_a_pair_of_towers(tmp_path: Path) -> None:
    pictures()
    processor(wordpiece(tmp_path), "CLIPImageProcessor")
    of = config("CLIPConfig")
    found = real(
        tmp_path, "zero-shot-image-classification", of, {**TEXT, "pixel_values": PIXELS},
        sequence_length=77, height=224, width=224,
    )  # fmt: skip
    assert found.origin == (
        "the model's tokenizer on packaged texts and the model's image processor on rendered "
        "pictures"
    )
    made = found.sample(1)
    assert made.keys() == {"input_ids", "attention_mask", "pixel_values"}
    assert not made["attention_mask"].all()  # captions are short

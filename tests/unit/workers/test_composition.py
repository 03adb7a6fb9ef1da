"""The composition record: how it is derived from names, written and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from workers import composition
from workers.composition import Component, Join, Ports, compose

SPEECH = {
    "decoder": (
        ["decoder_input_ids", "encoder_hidden_states"],
        ["logits", "present.0.decoder.key", "present.0.encoder.key"],
    ),
    "decoder_with_past": (
        ["decoder_input_ids", "past_key_values.0.decoder.key", "past_key_values.0.encoder.key"],
        ["logits", "present.0.decoder.key"],
    ),
    "encoder": (["input_features"], ["last_hidden_state"]),
}
SEGMENTATION = {
    "vision_encoder": (["pixel_values"], ["image_embeddings", "positions"]),
    "mask_decoder": (["positions", "image_embeddings", "input_points"], ["pred_masks"]),
}
JOIN = Join("logits", ("text/embeds", "vision/embeds"), 14.25, -0.5)


def links(ports: Mapping[str, Ports]) -> list[str]:
    found = compose(ports, "model.onnx")
    return [f"{link.output} -> {link.input}" for link in found.links]


def test_components_run_after_those_that_feed_them() -> None:
    found = compose(SPEECH, "model.onnx")
    assert list(found.components) == [
        Component("encoder", "encoder/model.onnx"),
        Component("decoder", "decoder/model.onnx"),
        Component("decoder_with_past", "decoder_with_past/model.onnx"),
    ]


def test_links_follow_the_names_that_exporters_give() -> None:
    assert sorted(links(SPEECH)) == [
        "decoder/present.0.decoder.key -> decoder_with_past/past_key_values.0.decoder.key",
        "decoder/present.0.encoder.key -> decoder_with_past/past_key_values.0.encoder.key",
        "encoder/last_hidden_state -> decoder/encoder_hidden_states",
    ]
    assert links(SEGMENTATION) == [
        "vision_encoder/positions -> mask_decoder/positions",
        "vision_encoder/image_embeddings -> mask_decoder/image_embeddings",
    ]


def test_a_circle_is_cut_where_it_begins() -> None:
    ports = {"a": (["x", "y"], ["z"]), "b": (["z"], ["y"])}
    assert links(ports) == ["a/z -> b/z"]


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    sides = {name: (["x"], ["embeds"]) for name in ("text", "vision")}
    for written in (compose(SPEECH, "model.onnx"), compose(sides, "model.onnx", [JOIN])):
        composition.write(written, tmp_path)
        assert composition.read(tmp_path) == written
        assert list(json.loads((tmp_path / composition.FILE).read_text())) == [
            "schema", "components", "links", "joins",
        ]  # fmt: skip


def test_a_loop_reads_as_it_was_written(tmp_path: Path) -> None:
    written = compose(SPEECH, "model.onnx", (), ("decoder", "decoder_with_past"))
    composition.write(written, tmp_path)
    assert composition.read(tmp_path) == written
    loop = json.loads((tmp_path / composition.FILE).read_text())["loop"]
    own = "decoder_with_past"
    assert loop["feeds"] == [
        {"output": f"{own}/present.0.decoder.key", "input": f"{own}/past_key_values.0.decoder.key"}
    ]
    assert (loop["begin"], loop["step"], loop["mask"]) == ("decoder", own, "")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda d: d.update(step="nobody"), "the loop names nobody, which is no component"),
        (lambda d: d.update(begin="decoder_with_past", step="decoder"), "runs after decoder"),
        (lambda d: d.update(feeds=[]), "the loop feeds nothing back"),
        (lambda d: d["feeds"][0].update(output="decoder/logits"), "is not of decoder_with_past"),
        (
            lambda d: d["feeds"][0].update(input="decoder_with_past/past_key_values.9.key"),
            "nothing feeds decoder_with_past/past_key_values.9.key before the first step",
        ),
        (lambda d: d.update(turns=3), "KeyError"),
    ],
)
def test_a_damaged_loop_says_what_is_wrong(
    damage: Callable[[Any], object], reason: str, tmp_path: Path
) -> None:
    written = compose(SPEECH, "model.onnx", (), ("decoder", "decoder_with_past"))
    record = json.loads(json.dumps(asdict(written)))
    damage(record["loop"])
    (tmp_path / composition.FILE).write_text(json.dumps(record))
    with pytest.raises(ValueError, match=reason):
        composition.read(tmp_path)


def test_a_model_without_a_record_is_what_its_files_are(tmp_path: Path) -> None:
    assert composition.read(tmp_path) is None
    assert composition.plain(["model.onnx"]).components == (Component("", "model.onnx"),)
    assert composition.plain(["b/model.onnx", "a/model.onnx"]).components == (
        Component("a", "a/model.onnx"),
        Component("b", "b/model.onnx"),
    )


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda d: d.update(schema=2), "its schema is 2, this version reads 1"),
        (lambda d: d.pop("components"), "TypeError"),
        (lambda d: d["links"][0].update(output=7), "AttributeError"),
        (lambda d: d.update(new="x"), "KeyError"),
        (lambda d: d.update(components=5), "TypeError"),
        (lambda d: d["links"][0].update(output="nobody/x"), "nobody/x belongs to no component"),
        (lambda d: d["components"].reverse(), "feeds an earlier component"),
        (
            lambda d: d["joins"].append({"name": "x", "outputs": [], "kind": "sum"}),
            "joins of the kind sum are unknown",
        ),
    ],
)
def test_a_damaged_record_says_what_is_wrong(
    damage: Callable[[Any], object], reason: str, tmp_path: Path
) -> None:
    record = json.loads(json.dumps(asdict(compose(SEGMENTATION, "model.onnx"))))
    damage(record)
    (tmp_path / composition.FILE).write_text(json.dumps(record))
    with pytest.raises(ValueError, match=reason):
        composition.read(tmp_path)


def test_the_features_of_an_image_feed_the_language_model() -> None:
    ports: dict[str, composition.Ports] = {
        "language": (("input_ids", "attention_mask", "image_features"), ("logits",)),
        "vision": (("pixel_values",), ("image_features",)),
    }
    made = composition.compose(ports, "model.onnx")
    assert [one.name for one in made.components] == ["vision", "language"]
    assert [(link.output, link.input) for link in made.links] == [
        ("vision/image_features", "language/image_features")
    ]

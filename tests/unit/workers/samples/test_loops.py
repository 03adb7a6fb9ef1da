"""The samples of the graphs of a decoder: padded as users pad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.engines import graphs
from workers.composition import compose
from workers.samples import loops
from workers.sources import model_file

CACHE = "past_key_values.0.key"
ALONE: Any = {
    "prefill": (["input_ids", "attention_mask", "position_ids"], ["logits", "present.0.key"]),
    "decode": (["input_ids", "attention_mask", "position_ids", CACHE], ["logits", "present.0.key"]),
}
PAIR: Any = {
    "encoder": (["input_ids", "attention_mask"], ["last_hidden_state"]),
    "decoder": (
        ["input_ids", "encoder_hidden_states", "encoder_attention_mask"],
        ["logits", "present.0.key"],
    ),
    "decoder_with_past": (["input_ids", CACHE], ["logits", "present.0.key"]),
}


def words(count: int = 6) -> dict[str, Any]:
    return {
        "input_ids": np.arange(10, 10 + count)[None],
        "attention_mask": np.ones((1, count), np.int64),
    }


def padded(count: int, kept: int) -> dict[str, Any]:
    """A text as a tokenizer pads it."""
    made = words(count)
    made["attention_mask"][:, kept:] = 0
    return made


def test_prompts_are_padded_from_the_left_and_every_other_one_goes_on_with_its_text() -> None:
    record = compose(ALONE, "model.onnx", (), ("prefill", "decode"))
    assert record.loop is not None
    made = [{**padded(6, kept), "position_ids": np.arange(6)[None]} for kept in (6, 4)]
    prompts = loops.begun(record.loop, {"prefill": made}, [], own=False)
    assert made[0]["input_ids"].tolist() == [[10, 11, 12, 13, 14, 15]]
    assert made[1]["input_ids"].tolist() == [[0, 0, 10, 11, 12, 13]]
    assert made[1]["attention_mask"].tolist() == [[0, 0, 1, 1, 1, 1]]
    assert made[1]["position_ids"].tolist() == [[0, 0, 0, 1, 2, 3]]
    assert prompts == [([10, 11, 12, 13, 14, 15], []), ([10, 11], [12, 13])]


def test_an_encoders_padding_is_known_to_its_decoder() -> None:
    record = compose(PAIR, "model.onnx", (), ("decoder", "decoder_with_past"))
    assert record.loop is not None
    found: Any = {"encoder": [words(), padded(6, 3)]}
    begun = {"input_ids": words()["input_ids"], "encoder_attention_mask": np.ones((1, 6), np.int64)}
    found["decoder"] = [dict(begun), dict(begun)]
    prompts = loops.begun(record.loop, found, [7], own=False)
    for number, one in enumerate(found["decoder"]):
        assert one["input_ids"].tolist() == [[7]]  # every text begins with it
        mask = found["encoder"][number]["attention_mask"]
        assert one["encoder_attention_mask"].tolist() == mask.tolist()
    assert prompts == [([7], []), ([7], [11, 12, 13, 14, 15])]


def decoder(folder: Path) -> Any:
    """The graphs of a decoder whose cache is its embeddings, and their record."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "length"])
    table = np.random.default_rng(1).standard_normal((8, 2)).astype(np.float32)
    weights = [graphs.initializer("table", table), graphs.initializer("axis", np.array([1]))]
    weights.append(graphs.initializer("w", np.ascontiguousarray(table.T)))
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", "w"], ["logits"]),
        helper.make_node("Unsqueeze", ["embedded", "axis"], ["present.0.key"]),
    ]
    past = helper.make_tensor_value_info(CACHE, TensorProto.FLOAT, [1, 1, "past", 2])
    grown = [
        *nodes[:2],
        helper.make_node("Unsqueeze", ["embedded", "axis"], ["new"]),
        helper.make_node("Concat", [CACHE, "new"], ["present.0.key"], axis=2),
    ]
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [1, "total"])
    results = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "length", 8]),
        helper.make_tensor_value_info("present.0.key", TensorProto.FLOAT, [1, 1, "all", 2]),
    ]
    ports: Any = {}
    for name, steps, given in (
        ("prefill", nodes, [ids, mask]),
        ("decode", grown, [ids, mask, past]),
    ):
        graph = helper.make_graph(steps, name, given, results, weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model_file.save(made, folder / name)
        ports[name] = [one.name for one in given], [one.name for one in results]
    return compose(ports, "model.onnx", (), ("prefill", "decode"))


def test_prompts_give_steps_with_longer_and_longer_caches(tmp_path: Path) -> None:
    record = decoder(tmp_path)
    found = {"prefill": [words() for _ in range(9)]}
    prompts = [([3, 4, 5, 6, 7, 1], []), ([3, 4, 5], [2, 2])] * 4 + [([3], [])]
    places = {0: (0,), 1: (1,), 8: (0, 3, 15)}
    made = loops.steps(record, found, prompts, tmp_path, 24, places)
    lengths = {
        number: [int(one["attention_mask"].sum()) for one in some] for number, some in made.items()
    }
    assert lengths == {0: [7], 1: [5], 8: [2, 5, 2 + 15]}  # with the token of the step
    assert all(one[CACHE].shape == (1, 1, 24, 2) for some in made.values() for one in some)
    assert made[1][0]["input_ids"].tolist() == [[2]]  # the text's own


def test_a_users_own_values_stay() -> None:
    record = compose(ALONE, "model.onnx", (), ("prefill", "decode"))
    assert record.loop is not None
    made = [padded(6, 4) for _ in range(6)]
    loops.begun(record.loop, {"prefill": made}, [], own=True)
    assert all(one["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0]] for one in made)

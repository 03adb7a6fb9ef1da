"""Generation by the record of a composition, with a decoder that can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest

from workers.composition import Component, Composition, Link, Loop, compose
from workers.generation import PROMPT, Graph, generate

SIZE = 31
PAST = "past_key_values.0.key"
PORTS = {
    "prefill": (["input_ids", "attention_mask", "position_ids"], ["logits", "present.0.key"]),
    "decode": (["input_ids", "attention_mask", "position_ids", PAST], ["logits", "present.0.key"]),
}
WORDS = [3, 14, 15, 9, 26]


def line(tokens: Sequence[int], positions: Sequence[int]) -> Any:
    """What a token leaves in the cache depends on it and on its position."""
    return np.asarray(tokens, np.float32) * (1 + np.asarray(positions, np.float32))


def likely(values: Any) -> Any:
    """The next token follows from everything that is visible."""
    return np.eye(SIZE, dtype=np.float32)[int(values.sum()) % SIZE]


def expected(prompt: Sequence[int], count: int, window: int = 1000) -> list[int]:
    """The same without a cache; a cache of a size holds what is newest."""
    tokens = list(prompt)
    for _ in range(count):
        values = line(tokens, range(len(tokens)))
        tokens.append(int(likely(values[-window:]).argmax()))
    return tokens[len(prompt) :]


def toy(tokens: Any, cache: Any = None) -> Any:
    """A graph with these sizes; None: open."""

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        new = line(feeds["input_ids"][0], feeds["position_ids"][0])[None, None, :, None]
        past = feeds.get(PAST, np.zeros((1, 1, 0, 1), np.float32))
        present = np.concatenate([past, new], axis=2)
        seen = present[0, 0, :, 0] * feeds["attention_mask"][0]
        return {"logits": likely(seen)[None, None], "present.0.key": present}

    whole = None if cache is None else cache + 1
    inputs: dict[str, Any] = {"input_ids": [1, tokens], "position_ids": [1, tokens]}
    inputs["attention_mask"] = [1, tokens if cache is None else whole]
    if cache is not None:
        inputs[PAST] = [1, 1, cache, 1]
    return Graph(inputs, run)


def opened(**graphs: Graph) -> Any:
    return graphs.__getitem__


def record() -> Composition:
    return compose(PORTS, "model.onnx", (), ("prefill", "decode"))


def tokens_of(graphs: Any, count: int, prompt: Sequence[int] = WORDS) -> list[int]:
    steps = generate(record(), {PROMPT: np.asarray(prompt)}, graphs)
    return [int(one.logits.argmax()) for one in islice(steps, count)]


def open_step() -> Graph:
    graph = toy(1, 0)
    inputs = {**graph.inputs, "attention_mask": [1, "all"], PAST: [1, 1, "past", 1]}
    return Graph(inputs, graph.run)


@pytest.mark.parametrize(
    ("first", "step"),
    [
        (toy("tokens"), open_step()),  # nothing has a fixed size
        (toy(8), toy(1, 24)),  # a prompt that does not fill its graph, a cache that never fills
        (toy(5), toy(1, 30)),
        (toy("tokens"), toy(1, 24)),
        (toy(8), open_step()),
    ],
)
def test_what_is_generated_does_not_depend_on_the_sizes_of_graphs(first: Any, step: Any) -> None:
    assert tokens_of(opened(prefill=first, decode=step), 12) == expected(WORDS, 12)


def test_a_full_cache_forgets_the_oldest_token() -> None:
    graphs = opened(prefill=toy(8), decode=toy(1, 6))
    assert tokens_of(graphs, 12) == expected(WORDS, 12, window=7)
    assert expected(WORDS, 12, window=7) != expected(WORDS, 12)


def test_the_caller_may_choose_the_tokens() -> None:
    """So two runs see the same text, whatever the first of them prefers."""
    given = [7, 7, 7, 7]
    graphs = opened(prefill=toy(8), decode=toy(1, 24))
    steps = generate(record(), {PROMPT: np.asarray(WORDS)}, graphs, lambda at, _logits: given[at])
    found = [int(one.logits.argmax()) for one in islice(steps, 4)]
    assert found == [expected([*WORDS, *given[:at]], 1)[0] for at in range(4)]


def test_a_prompt_that_does_not_fit_is_told() -> None:
    graphs = opened(prefill=toy(4), decode=toy(1, 24))
    with pytest.raises(ValueError, match="the prompt has 5 tokens, prefill takes 4"):
        tokens_of(graphs, 1)


def test_a_padded_cache_needs_a_mask() -> None:
    step = toy(1, 24)
    bare = {name: shape for name, shape in step.inputs.items() if name != "attention_mask"}
    graphs = opened(prefill=toy(8), decode=Graph(bare, step.run))
    with pytest.raises(ValueError, match="decode has no mask that hides the unused part"):
        tokens_of(graphs, 2)


def test_an_encoder_runs_once_and_its_output_stays() -> None:
    """The decoder begins with one token; the rest of the prompt goes through its steps."""
    ran = []

    def encode(feeds: Mapping[str, Any]) -> dict[str, Any]:
        ran.append(feeds["input_ids"].shape)
        return {"last_hidden_state": feeds["input_ids"].sum(keepdims=True).astype(np.float32)}

    def begin(feeds: Mapping[str, Any]) -> dict[str, Any]:
        cache = feeds["input_ids"].astype(np.float32)[None, None].reshape(1, 1, -1, 1)
        cross = feeds["encoder_hidden_states"][None, None]
        return {"logits": likely(cache + cross)[None, None], "present.0.decoder.key": cache,
                "present.0.encoder.key": cross}  # fmt: skip

    def step(feeds: Mapping[str, Any]) -> dict[str, Any]:
        new = feeds["input_ids"].astype(np.float32)[None, None].reshape(1, 1, 1, 1)
        cache = np.concatenate([feeds["past_key_values.0.decoder.key"], new], axis=2)
        total = cache.sum() + feeds["past_key_values.0.encoder.key"].sum()
        return {"logits": likely(total)[None, None], "present.0.decoder.key": cache}

    own, cross = "past_key_values.0.decoder.key", "past_key_values.0.encoder.key"
    ports = {
        "encoder": (["input_ids"], ["last_hidden_state"]),
        "decoder": (
            ["input_ids", "encoder_hidden_states"],
            ["logits", "present.0.decoder.key", "present.0.encoder.key"],
        ),
        "decoder_with_past": (["input_ids", own, cross], ["logits", "present.0.decoder.key"]),
    }
    graphs = opened(
        encoder=Graph({"input_ids": [1, 6]}, encode),
        decoder=Graph({"input_ids": [1, 1], "encoder_hidden_states": [1, 1]}, begin),
        decoder_with_past=Graph(
            {"input_ids": [1, 1], own: [1, 1, None, 1], cross: [1, 1, 1, 1]}, step
        ),
    )
    found = compose(ports, "model.onnx", (), ("decoder", "decoder_with_past"))
    prompt = {PROMPT: np.asarray([2, 5]), "encoder/input_ids": np.asarray([[4, 4, 1]])}
    first, second = islice(generate(found, prompt, graphs), 2)
    assert int(first.logits.argmax()) == 2 + 5 + 9
    assert int(second.logits.argmax()) == (2 + 5 + 9 + 16) % SIZE
    assert ran == [(1, 6)]  # padded to the size of the graph, and run once


def test_a_record_without_a_loop_generates_nothing() -> None:
    with pytest.raises(ValueError, match="no loop"):
        next(generate(Composition((Component("a", "a.onnx"),)), {}, opened()))


def test_nothing_but_the_cache_goes_round() -> None:
    loop = record().loop
    assert loop == Loop(
        "prefill",
        "decode",
        (Link("decode/present.0.key", f"decode/{PAST}"),),
        mask="attention_mask",
        position="position_ids",
    )

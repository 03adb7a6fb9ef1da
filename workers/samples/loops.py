"""Samples of a decoder's graphs: prompts, and steps after some tokens with a cache of fixed size.

Random values do not resemble the content of a cache, so the exported graphs generate the samples,
each from another prompt and with another number of steps. Every other prompt is the beginning of a
text that goes on with its own tokens, as while a user's text is read; the others go on with the
most likely token, for as long as the generation that verification repeats: a model that goes on
with the same token for long computes values that no text has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from workers import generation
from workers.composition import Composition, Loop, split
from workers.generation import Graph, generate
from workers.sources import model_file, runtime
from workers.sources.errors import quantize_error

PAST = "past_sequence_length"
"""The shape of a catalog that gives the size of a cache."""
_MASKS = {"encoder_attention_mask": "attention_mask"}
"""Inputs of decoders that are inputs of the encoder."""
Sample = dict[str, Any]
Found = Mapping[str, Sequence[Sample]]
"""The samples of each component that has some."""
Words = list[int]
Ports = Mapping[str, Sequence[str]]
"""The inputs of every component."""


def prompt_of(
    first: Mapping[str, Mapping[str, Any]], tokens: Sequence[int], ports: Ports, loop: Loop
) -> dict[str, Any]:
    """The arrays of a prompt: inputs of the first components, of their decoders, and tokens."""
    import numpy as np

    prompt: dict[str, Any] = {generation.PROMPT: np.asarray(tokens, np.int64)}
    for name, inputs in first.items():
        prompt |= {f"{name}/{key}": value for key, value in inputs.items()}
        for taker in (loop.begin, loop.step):
            prompt |= {
                f"{taker}/{ours}": inputs[theirs]
                for ours, theirs in _MASKS.items()
                if ours in ports[taker] and theirs in inputs
            }
    return prompt


def begun(loop: Loop, found: Found, start: Words, *, own: bool) -> list[tuple[Words, Words]]:
    """Give the samples of the component that reads prompts the form of a loop's.

    Returns the prompt of each, from which steps are made, and the tokens with which it goes on;
    none: the most likely ones. A decoder without a mask begins with the tokens `start` that every
    text begins with, and takes the mask of its encoder. `own`: a user's values stay.
    """
    prompts = []
    for number, sample in enumerate(found[loop.begin]):
        words = words_of(sample, loop)
        if loop.mask in sample:
            half = max(len(words) // 2, 1) if number % 2 else len(words)
            prompts.append((words[:half], words[half:]))
            if not own:
                inputs = {port: value.shape for port, value in sample.items()}
                sample.update(generation.lines(inputs, loop, words, 0))
        else:
            prompts.append((start, words[1:] if number % 2 else []))
            sample.update(generation.lines({loop.tokens: (1, len(start))}, loop, start, 0))
        first = {one: sets[number] for one, sets in found.items() if one != loop.begin}
        given = prompt_of(first, (), {loop.begin: list(sample), loop.step: ()}, loop)
        own_inputs = {key: given.get(f"{loop.begin}/{key}") for key in sample}
        sample.update({key: value for key, value in own_inputs.items() if value is not None})
    return prompts


def cache_bytes(record: Composition, exported: Path, past: int) -> int:
    """The size of a sample of the component that is repeated."""
    return sum(
        4 * prod(size for size in shape if isinstance(size, int))
        for shape in _stepped(record, exported, past).values()
    )


def steps(
    record: Composition,
    found: Found,
    prompts: Sequence[tuple[Words, Words]],
    exported: Path,
    past: int,
    places: Mapping[int, Sequence[int]],
) -> dict[int, list[Sample]]:
    """The samples of the component that is repeated, by the number of their prompt: the inputs of
    the steps at these places of its text."""
    loop = record.loop
    assert loop is not None, "only a loop has steps"
    sessions = _Sessions(exported)
    graphs = {one.name: sessions.graph(one.name) for one in record.components}
    ports = {name: list(graph.inputs) for name, graph in graphs.items()}
    graphs[loop.step] = Graph(_stepped(record, exported, past), graphs[loop.step].run)
    begun_texts = {}
    for number in places:
        words, further = prompts[number]
        first = {name: sets[number] for name, sets in found.items() if name != loop.begin}
        prompt = prompt_of(first, words, ports, loop)
        choose = _reading(further) if further else generation.greedy
        begun_texts[number] = generate(record, prompt, graphs.__getitem__, choose)
    try:
        for text in begun_texts.values():  # all read their prompts before a second graph is open
            next(text)
        return {
            number: [
                one.feeds
                for place, one in enumerate(islice(text, max(places[number]) + 1))
                if place in places[number]
            ]
            for number, text in begun_texts.items()
        }
    except ValueError as error:
        raise quantize_error(f"the steps of the decoder have no inputs: {error}") from error


def words_of(sample: Sample, loop: Loop) -> Words:
    """The tokens of a sample without its padding."""
    line = sample[loop.tokens][0]
    if loop.mask in sample:
        line = line[sample[loop.mask][0] > 0]
    return [int(one) for one in line]


def _reading(further: Words) -> Callable[[int, Any], int]:
    """A text's own tokens, then the most likely ones."""

    def choose(number: int, logits: Any) -> int:
        if number < len(further):
            return further[number]
        return generation.greedy(number, logits)

    return choose


def _stepped(record: Composition, exported: Path, past: int) -> dict[str, generation.Shape]:
    """The inputs of the component that is repeated, with a cache of a fixed size."""
    loop = record.loop
    assert loop is not None, "only a loop has steps"
    ports = runtime.signature(model_file.find(exported, loop.step))
    inputs: dict[str, generation.Shape] = {name: port.shape for name, port in ports.items()}
    for name in (split(one.input)[1] for one in loop.feeds):
        inputs[name] = [*inputs[name][:2], past, *inputs[name][3:]]
    return inputs


class _Sessions:
    """Sessions of components, one at a time: each maps all weights of a large model."""

    def __init__(self, exported: Path) -> None:
        self._exported = exported
        self._name = ""
        self._session: Any = None

    def graph(self, name: str) -> Graph:
        """A component that is opened when it runs."""
        ports = runtime.signature(model_file.find(self._exported, name))
        return Graph({port: spec.shape for port, spec in ports.items()}, partial(self._run, name))

    def _run(self, name: str, feeds: Mapping[str, Any]) -> Sample:
        if name != self._name:
            self._session = None  # closed before the next one is opened
            self._session = runtime.session(model_file.find(self._exported, name))
            self._name = name
        return runtime.run(self._session, feeds)

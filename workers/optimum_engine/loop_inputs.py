"""Samples for a decoder's step: its inputs after some tokens, with a cache of fixed size.

Random values do not resemble the content of a cache, so the exported graphs generate the samples,
each from another prompt and with another number of steps: every other sample greedily, the others
with random tokens. Greedy ones go on for as long as the generation that verification repeats: a
model that goes on with the same token for long computes values that no other sample has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from workers import generation
from workers.composition import Composition, Loop, split
from workers.generation import Graph, generate
from workers.optimum_engine.generated import prompt_of
from workers.sources import model_file, runtime
from workers.sources.errors import quantize_error

PAST = "past_sequence_length"
"""The shape of a catalog that gives the size of a cache."""
_STEPS = 2
"""Samples of each prompt; those of the next one are so many steps further, and from
`generation.COUNT` steps on those of the next one begin again."""
_WHOLE = 3
"""The first samples of a prompt have no padding: they are those that parity compares, and what a
graph computes for padding means nothing."""
Sample = dict[str, Any]
Found = Mapping[str, Sequence[Sample]]
"""The samples of each component that has some."""


def shaped(
    record: Composition, name: str, found: Found, exported: Path, *, generated: bool
) -> None:
    """Make the samples of a component like those of a loop.

    A decoder without a mask begins with the one token that every text begins with, and takes the
    mask of its encoder. Unless they are a user's own, some samples have padding.
    """
    loop = record.loop
    if loop is None:
        return
    for number, sample in enumerate(found[name]):
        if generated and number % 2 and name != loop.begin and "attention_mask" in sample:
            mask = sample["attention_mask"].copy()
            mask[:, (mask.shape[1] + 1) // 2 :] = 0
            sample["attention_mask"] = mask
        padded = generated and number % 2 and number >= _WHOLE
        if padded and name == loop.begin and loop.mask in sample:
            width = sample[loop.tokens].shape[1]
            words = sample[loop.tokens][0, (width + 1) // 2 :].tolist()
            inputs = {port: value.shape for port, value in sample.items()}
            sample.update(generation.lines(inputs, loop, words, 0))
        if name == loop.begin:
            first = {one: sets[number] for one, sets in found.items() if one != name}
            prompt = prompt_of(first, (), {name: list(sample), loop.step: ()}, loop)
            sample |= {key: prompt[f"{name}/{key}"] for key in sample if f"{name}/{key}" in prompt}
            if loop.mask not in sample:
                start = generation.read(exported / generation.FILE)[generation.PROMPT]
                sample[loop.tokens] = start[None, :1]


def of_step(record: Composition, found: Found, exported: Path, past: int) -> list[Sample]:
    """The samples of the component that is repeated, with a cache of that size."""
    import numpy as np

    loop = record.loop
    if loop is None:
        raise AssertionError("only a loop has steps")
    sessions = _Sessions(exported)
    graphs = {one.name: sessions.graph(one.name) for one in record.components}
    ports = {name: list(graph.inputs) for name, graph in graphs.items()}
    step = graphs[loop.step]
    inputs = dict(step.inputs)
    for name in (split(one.input)[1] for one in loop.feeds):
        inputs[name] = [*inputs[name][:2], past, *inputs[name][3:]]
    graphs[loop.step] = Graph(inputs, step.run)
    texts = []
    for number, begun in enumerate(found[loop.begin]):
        first = {name: sets[number] for name, sets in found.items() if name != loop.begin}
        prompt = prompt_of(first, _words(begun, loop), ports, loop)
        random = np.random.default_rng(number)

        def varied(_number: int, logits: Any, random: Any = random) -> int:
            return int(random.integers(logits.shape[-1]))

        choose = varied if number % 2 else generation.greedy
        texts.append(generate(record, prompt, graphs.__getitem__, choose))
    try:
        for steps in texts:  # all read their prompts before a second graph is open
            next(steps)
        firsts = [_STEPS * number % generation.COUNT for number in range(len(texts))]
        return [
            one.feeds
            for first, steps in zip(firsts, texts, strict=True)
            for one in islice(steps, first, first + _STEPS)
        ]
    except ValueError as error:
        raise quantize_error(f"the steps of the decoder have no inputs: {error}") from error


def _words(begun: Sample, loop: Loop) -> list[int]:
    """The tokens of a prompt without its padding."""
    line = begun[loop.tokens][0]
    if loop.mask in begun:
        line = line[begun[loop.mask][0] > 0]
    return [int(one) for one in line]


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

"""Generation with the components of a decoder, driven by the record of their composition.

    first components -> begin (the prompt) -> step -> step -> ...
                          |                   ^  |
                          +--- the cache -----+--+

Caches, masks and tokens of a fixed size are filled from the right: the newest stands last, zeros
before it are hidden by the mask, and what no longer fits is the oldest. One component is needed at
a time, so the caller may open and close it.

NumPy is imported inside functions: engines and hosts use this module, their owners only its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.composition import Composition, Loop, split

FILE = "generation.npz"
"""The prompt, what the components take besides, and the tokens that PyTorch generates."""
PROMPT, TOKENS = "prompt", "tokens"
COUNT = 16
"""Tokens that are generated."""

Arrays = dict[str, Any]
Run = Callable[[Mapping[str, Any]], Arrays]
Shape = Sequence[int | str | None]


@dataclass(frozen=True, slots=True)
class Graph:
    """A component that is open: its inputs with their shapes, and how to run it."""

    inputs: Mapping[str, Shape]
    run: Run


@dataclass(frozen=True, slots=True)
class Step:
    """What one step is given, and what it answers."""

    feeds: Arrays
    outputs: Arrays
    logits: Any
    """Of the next token."""


Open = Callable[[str], Graph]
"""Opens a component by its name."""
Choose = Callable[[int, Any], int]
"""The next token, from its number and its logits."""


def greedy(_number: int, logits: Any) -> int:
    """The most likely token."""
    return int(logits.argmax())


def generate(
    record: Composition, prompt: Mapping[str, Any], opening: Open, choose: Choose = greedy
) -> Iterator[Step]:
    """The steps after which each token is known, the first from the prompt alone; endless.

    Raises `ValueError` where the graphs cannot be run this way.
    """
    loop = record.loop
    if loop is None:
        raise ValueError("the composition has no loop")
    tokens = [int(one) for one in prompt[PROMPT]]
    given: dict[str, Arrays] = {}
    for name in (one.name for one in record.components if one.name not in {loop.begin, loop.step}):
        given[name] = _run(opening(name), _besides(record, name, prompt, given))
    begin = opening(loop.begin)
    besides = _besides(record, loop.begin, prompt, given)
    read_first = _taken(begin.inputs, loop, len(tokens))
    feeds = {**besides, **lines(begin.inputs, loop, tokens[:read_first], 0)}
    feeds = fitted(feeds, begin.inputs)
    given[loop.begin] = begin.run(feeds)
    last = Step(feeds, given[loop.begin], given[loop.begin][loop.logits][0, -1])
    del begin
    step = opening(loop.step)
    cache = _besides(record, loop.step, prompt, given)
    number = 0
    for seen in range(read_first, 1 << 62):
        if seen >= len(tokens):
            yield last
            tokens.append(choose(number, last.logits))
            number += 1
        feeds = stepping(step.inputs, loop, cache, tokens[seen], seen)
        outputs = step.run(feeds)
        cache |= {split(one.input)[1]: outputs[split(one.output)[1]] for one in loop.feeds}
        last = Step(feeds, outputs, outputs[loop.logits][0, -1])


def stepping(
    inputs: Mapping[str, Shape], loop: Loop, cache: Mapping[str, Any], token: int, seen: int
) -> Arrays:
    """The inputs of a step: the cache cut to its size, the token, its mask and position."""
    grown = {split(one.input)[1] for one in loop.feeds}
    held = {name: _held(value, inputs[name]) for name, value in cache.items() if name in grown}
    length = max((value.shape[2] for value in held.values()), default=seen)
    if length > seen and loop.mask not in inputs:
        raise ValueError(f"{loop.step} has no mask that hides the unused part of its cache")
    feeds = {**cache, **held, **lines(inputs, loop, [token], seen, length)}
    return fitted(feeds, inputs)


def _run(graph: Graph, feeds: Arrays) -> Arrays:
    return graph.run(fitted(feeds, graph.inputs))


def _besides(
    record: Composition, name: str, prompt: Mapping[str, Any], given: Mapping[str, Arrays]
) -> Arrays:
    """The inputs of a component beside tokens: those of the prompt, then what others give it."""
    head = f"{name}/"
    found = {key.removeprefix(head): one for key, one in prompt.items() if key.startswith(head)}
    for link in record.into(name):
        giver, output = split(link.output)
        found[split(link.input)[1]] = given[giver][output]
    return found


def _taken(inputs: Mapping[str, Shape], loop: Loop, count: int) -> int:
    """How many tokens of the prompt the first graph takes; the steps take the others."""
    size = inputs[loop.tokens][1]
    if not isinstance(size, int) or loop.mask in inputs:
        if isinstance(size, int) and count > size:
            raise ValueError(f"the prompt has {count} tokens, {loop.begin} takes {size}")
        return count
    if count < size:
        raise ValueError(f"the prompt has {count} tokens, {loop.begin} takes {size} without a mask")
    return size


def lines(
    inputs: Mapping[str, Shape], loop: Loop, tokens: Sequence[int], seen: int, length: int = 0
) -> Arrays:
    """Tokens with their mask and positions; `length`: of the cache before them."""
    import numpy as np

    size = inputs[loop.tokens][1]
    count = size if isinstance(size, int) else len(tokens)
    line = np.zeros((1, count), np.int64)
    line[0, count - len(tokens) :] = tokens
    found = {loop.tokens: line}
    if loop.mask in inputs:
        mask = np.zeros((1, length + count), np.int64)
        mask[0, max(length - seen, 0) + count - len(tokens) :] = 1
        found[loop.mask] = mask
    if loop.position in inputs:
        found[loop.position] = np.zeros((1, count), np.int64)
        found[loop.position][0, count - len(tokens) :] = range(seen, seen + len(tokens))
    return found


def _held(value: Any, shape: Shape) -> Any:
    """A cache of the size that a graph takes."""
    import numpy as np

    size = shape[2]
    if not isinstance(size, int) or size == value.shape[2]:
        return value
    missing = size - value.shape[2]
    if missing < 0:
        return value[:, :, -missing:]
    return np.pad(value, ((0, 0), (0, 0), (missing, 0), (0, 0)))


def fitted(feeds: Mapping[str, Any], inputs: Mapping[str, Shape]) -> Arrays:
    """The values that a graph takes; what is shorter than a fixed size gets zeros behind it."""
    import numpy as np

    found = {}
    for name, shape in inputs.items():
        if name not in feeds:
            raise ValueError(f"nothing feeds the input {name}")
        value = feeds[name]
        gaps = [
            (0, size - have if isinstance(size, int) else 0)
            for have, size in zip(value.shape, shape, strict=True)
        ]
        if any(gap < 0 for _zero, gap in gaps):
            raise ValueError(f"{name} has the shape {list(value.shape)}, the graph {list(shape)}")
        found[name] = np.pad(value, gaps) if any(gap for _zero, gap in gaps) else value
    return found

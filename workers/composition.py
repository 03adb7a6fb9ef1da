"""The composition of a model: its components, which outputs feed which inputs, what is joined,
and what is repeated.

The export stage of an engine writes it as `composition.json` at the top of a model that has
components; it travels with every package of the model. A single model has none. Whatever treats
composites reads this record and knows no model families. The dataclasses are the format.

Standard library only: engines use this module inside foreign interpreters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from machine.files import read_json
from workers.engine import from_json

FILE = "composition.json"
SCHEMA = 1
COSINE = "cosine"

_FEEDS = {"last_hidden_state": "encoder_hidden_states"}
_FEEDS_BY_PREFIX = {"present.": "past_key_values."}


@dataclass(frozen=True, slots=True)
class Component:
    """A graph of the model and its file in the package."""

    name: str
    model: str


@dataclass(frozen=True, slots=True)
class Link:
    """An output that is the input of a later component; each is written `COMPONENT/NAME`."""

    output: str
    input: str


@dataclass(frozen=True, slots=True)
class Join:
    """A result of the whole model: `scale * cosine(a, b) + bias`, every `a` with every `b`."""

    name: str
    outputs: Sequence[str]
    scale: float = 1.0
    bias: float = 0.0
    kind: str = COSINE


@dataclass(frozen=True, slots=True)
class Loop:
    """How a decoder generates: `begin` reads the prompt, `step` runs once for every further token.

    Of these inputs and outputs, both components have those that they need, under these names.
    """

    begin: str
    step: str
    feeds: Sequence[Link]
    """Outputs of the step that are its own inputs in the next one: the cache, which grows by one
    position along its third axis."""
    tokens: str = "input_ids"
    logits: str = "logits"
    mask: str = ""
    """1 for a position of the cache or of the new tokens that counts; empty: there is no mask."""
    position: str = ""
    """The number of tokens before each new one; empty: the step finds it by itself."""


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything about a model that its component graphs do not say by themselves."""

    schema: int = field(default=SCHEMA, kw_only=True)
    components: Sequence[Component]
    """In an order in which they can run."""
    links: Sequence[Link] = ()
    joins: Sequence[Join] = ()
    loop: Loop | None = None

    def into(self, component: str) -> list[Link]:
        """The links that feed a component."""
        return [link for link in self.links if split(link.input)[0] == component]

    def check(self) -> None:
        """Raise `ValueError` if a port belongs to no component, or an output comes too late."""
        order = [one.name for one in self.components]
        ports = [port for link in self.links for port in (link.output, link.input)]
        for port in (*ports, *(port for join in self.joins for port in join.outputs)):
            if split(port)[0] not in order:
                raise ValueError(f"{port} belongs to no component")
        for link in self.links:
            if order.index(split(link.output)[0]) >= order.index(split(link.input)[0]):
                raise ValueError(f"{link.output} feeds an earlier component")
        if unknown := {join.kind for join in self.joins} - {COSINE}:
            raise ValueError(f"joins of the kind {min(unknown)} are unknown")
        if self.loop is not None:
            self._check_loop(self.loop, order)

    def _check_loop(self, loop: Loop, order: Sequence[str]) -> None:
        for name in (loop.begin, loop.step):
            if name not in order:
                raise ValueError(f"the loop names {name}, which is no component")
        if order.index(loop.begin) >= order.index(loop.step):
            raise ValueError(f"the loop begins with {loop.begin}, which runs after {loop.step}")
        if not loop.feeds:
            raise ValueError("the loop feeds nothing back")
        begun = {link.input for link in self.into(loop.step)}
        for link in loop.feeds:
            if {split(link.output)[0], split(link.input)[0]} != {loop.step}:
                raise ValueError(f"{link.output} feeds {link.input}, which is not of {loop.step}")
            if link.input not in begun:
                raise ValueError(f"nothing feeds {link.input} before the first step")


Ports = tuple[Sequence[str], Sequence[str]]
"""The names of a component's inputs and of its outputs."""


def split(port: str) -> tuple[str, str]:
    """The component and the name of a port."""
    component, _, name = port.partition("/")
    return component, name


def compose(
    ports: Mapping[str, Ports],
    model: str,
    joins: Sequence[Join] = (),
    loop: tuple[str, str] | None = None,
) -> Composition:
    """The composition of components in folders of their names, each with a file `model`.

    Exporters name an output like the input that it feeds, or by one of a few conventions. `loop`:
    the component that reads the prompt, and the one that is repeated.
    """
    feeds = {
        (giver, taker): [
            Link(f"{giver}/{output}", f"{taker}/{name}")
            for name in inputs
            for output in outputs
            if name in {output, _fed_by(output)}
        ]
        for taker, (inputs, _) in ports.items()
        for giver, (_, outputs) in ports.items()
        if giver != taker
    }
    order: list[str] = []
    while pending := [name for name in ports if name not in order]:
        ready = [one for one in pending if not any(feeds.get((other, one)) for other in pending)]
        order.append((ready or pending)[0])  # in a circle the given order decides
    links: dict[str, Link] = {}  # an input has one source
    for place, taker in enumerate(order):
        for link in (link for giver in order[:place] for link in feeds[giver, taker]):
            links.setdefault(link.input, link)
    components = [Component(name, f"{name}/{model}") for name in order]
    repeated = _loop(*loop, ports[loop[1]]) if loop else None
    return Composition(tuple(components), tuple(links.values()), tuple(joins), repeated)


def _loop(begin: str, step: str, ports: Ports) -> Loop:
    inputs, outputs = ports
    feeds = [
        Link(f"{step}/{output}", f"{step}/{_fed_by(output)}")
        for output in outputs
        if output != _fed_by(output) and _fed_by(output) in inputs
    ]
    named = {"mask": "attention_mask", "position": "position_ids"}
    known = {field: name for field, name in named.items() if name in inputs}
    return Loop(begin, step, tuple(feeds), **known)


def write(composition: Composition, folder: Path) -> None:
    """Write the record at the top of an export."""
    record = {name: value for name, value in asdict(composition).items() if value is not None}
    text = json.dumps(record, indent=1) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8", newline="\n")


def read(folder: Path) -> Composition | None:
    """The record of a model; None: it has none. Raises `ValueError` if it cannot be used."""
    try:
        record = read_json(folder / FILE)
        if record["schema"] != SCHEMA:
            raise ValueError(f"its schema is {record['schema']}, this version reads {SCHEMA}")
        found = from_json(record, Composition)
        found.check()
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = error if type(error) is ValueError else type(error).__name__
        raise ValueError(f"{FILE} cannot be used: {reason}") from error
    return found


def plain(files: Iterable[str]) -> Composition:
    """The composition of a model without a record: a component for each model file."""
    names = {PurePosixPath(file).parent.as_posix().removeprefix("."): file for file in files}
    return Composition(tuple(Component(name, file) for name, file in sorted(names.items())))


def _fed_by(output: str) -> str:
    for head, instead in _FEEDS_BY_PREFIX.items():
        if output.startswith(head):
            return instead + output.removeprefix(head)
    return _FEEDS.get(output, output)

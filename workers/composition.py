"""The composition of a model: its components, which outputs feed which inputs, what is joined.

The export stage of an engine writes it as `composition.json` at the top of a model that has
components; it travels with every package of the model. A single model has none. Whatever treats
composites reads this record and knows no model families.

Standard library only: engines import this module inside foreign interpreters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

FILE = "composition.json"
SCHEMA = 1
COSINE = "cosine"
"""The only kind of join so far: `scale * cosine(a, b) + bias`, every `a` with every `b`."""

_FEEDS = {"last_hidden_state": "encoder_hidden_states"}
_FEEDS_BY_PREFIX = {"present.": "past_key_values."}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a component, written `COMPONENT/NAME`."""

    component: str
    name: str

    def __str__(self) -> str:
        return f"{self.component}/{self.name}"


@dataclass(frozen=True, slots=True)
class Link:
    """An output that is the input of a later component."""

    output: Port
    input: Port


@dataclass(frozen=True, slots=True)
class Join:
    """A result of the whole model that no component computes alone."""

    name: str
    outputs: tuple[Port, Port]
    scale: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything about a model that its component graphs do not say by themselves."""

    components: Mapping[str, str]
    """Name -> model file, in an order in which they can run."""
    links: tuple[Link, ...] = ()
    joins: tuple[Join, ...] = ()

    def into(self, component: str) -> list[Link]:
        """The links that feed a component."""
        return [link for link in self.links if link.input.component == component]

    def to_json(self) -> dict[str, Any]:
        """The record."""
        return {
            "schema": SCHEMA,
            "components": [{"name": name, "model": file} for name, file in self.components.items()],
            "links": [
                {"output": str(link.output), "input": str(link.input)} for link in self.links
            ],
            "joins": [
                {
                    "name": join.name,
                    "kind": COSINE,
                    "outputs": [str(port) for port in join.outputs],
                    "scale": join.scale,
                    "bias": join.bias,
                }
                for join in self.joins
            ],
        }


@dataclass(frozen=True, slots=True)
class Ports:
    """The names of a component's inputs and outputs."""

    inputs: Iterable[str] = field(default=())
    outputs: Iterable[str] = field(default=())


def compose(ports: Mapping[str, Ports], model: str, joins: Iterable[Join] = ()) -> Composition:
    """The composition of components in folders of their names, each with a file `model`.

    Exporters name an output like the input that it feeds, or by one of a few conventions.
    """
    links = [
        Link(Port(giver, output), Port(taker, name))
        for taker, wants in ports.items()
        for name in wants.inputs
        for giver, gives in ports.items()
        for output in gives.outputs
        if giver != taker and name in {output, _fed_by(output)}
    ]
    order = _order(list(ports), links)
    kept: dict[Port, Link] = {}  # an input has one source
    for link in links:
        if order.index(link.output.component) < order.index(link.input.component):
            kept.setdefault(link.input, link)
    components = {name: f"{name}/{model}" for name in order}
    return Composition(components, tuple(kept.values()), tuple(joins))


def write(composition: Composition, folder: Path) -> None:
    """Write the record at the top of an export."""
    text = json.dumps(composition.to_json(), indent=1) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8", newline="\n")


def read(folder: Path) -> Composition | None:
    """The record of a model; None: it has none. Raises `ValueError` if it cannot be used."""
    try:
        text = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _parse(json.loads(text))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = str(error) if type(error) is ValueError else type(error).__name__
        raise ValueError(f"{FILE} cannot be used: {reason}") from error


def plain(files: Iterable[str]) -> Composition:
    """The composition of a model without a record: a component for each model file."""
    return Composition(
        {PurePosixPath(file).parent.as_posix().removeprefix("."): file for file in sorted(files)}
    )


def _fed_by(output: str) -> str:
    for head, instead in _FEEDS_BY_PREFIX.items():
        if output.startswith(head):
            return instead + output.removeprefix(head)
    return _FEEDS.get(output, output)


def _order(names: list[str], links: Iterable[Link]) -> list[str]:
    """Components after those that feed them; in a circle the given order decides."""
    feeders = {
        name: {link.output.component for link in links if link.input.component == name}
        for name in names
    }
    order: list[str] = []
    while pending := [name for name in names if name not in order]:
        ready = (name for name in pending if not feeders[name] & set(pending))
        order.append(next(ready, pending[0]))
    return order


def _parse(record: Mapping[str, Any]) -> Composition:
    if record["schema"] != SCHEMA:
        raise ValueError(f"its schema is {record['schema']}, this version reads {SCHEMA}")
    components = {str(one["name"]): str(one["model"]) for one in record["components"]}
    links = tuple(Link(_port(one["output"]), _port(one["input"])) for one in record["links"])
    found = Composition(components, links, tuple(map(_join, record["joins"])))
    ports = [port for link in links for port in (link.output, link.input)]
    ports += [port for join in found.joins for port in join.outputs]
    if unknown := [port for port in ports if port.component not in components]:
        raise ValueError(f"{unknown[0]} belongs to no component")
    order = list(components)
    for link in links:
        if order.index(link.output.component) >= order.index(link.input.component):
            raise ValueError(f"{link.output} feeds an earlier component")
    return found


def _join(record: Mapping[str, Any]) -> Join:
    if record["kind"] != COSINE:
        raise ValueError(f"a join of the kind {record['kind']} is unknown")
    left, right = record["outputs"]
    outputs = _port(left), _port(right)
    return Join(str(record["name"]), outputs, float(record["scale"]), float(record["bias"]))


def _port(text: str) -> Port:
    component, _, name = text.partition("/")
    return Port(component, name)

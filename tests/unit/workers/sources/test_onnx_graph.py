"""The order of nodes: stable where it was right, refused where there is none."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from workers.engine import StageError
from workers.sources import onnx_graph


def node(name: str, *inputs: str, inner: Any = None) -> Any:
    attribute = SimpleNamespace(graphs=[], g=inner, HasField=lambda _name: inner is not None)
    return SimpleNamespace(input=list(inputs), output=[name], attribute=[attribute])


def names(graph: Any) -> list[str]:
    return [one.output[0] for one in graph.node]


def test_a_sorted_graph_is_left_alone() -> None:
    graph = SimpleNamespace(node=[node("b", "x"), node("a", "b"), node("c", "a", "")])
    onnx_graph.sort(graph)
    assert names(graph) == ["b", "a", "c"]


def test_every_shuffle_is_sorted_again() -> None:
    chain = [node(str(number), str(number - 1)) for number in range(20)]
    for seed in range(10):
        graph = SimpleNamespace(node=random.Random(seed).sample(chain, len(chain)))
        onnx_graph.sort(graph)
        assert names(graph) == [str(number) for number in range(20)]


def test_what_a_subgraph_takes_from_outside_comes_first() -> None:
    inner = SimpleNamespace(node=[node("deep", "made")])
    graph = SimpleNamespace(node=[node("if", "x", inner=inner), node("made", "x")])
    onnx_graph.sort(graph)
    assert names(graph) == ["made", "if"]


def test_a_cycle_is_refused() -> None:
    graph = SimpleNamespace(node=[node("a", "b"), node("b", "a")])
    with pytest.raises(StageError, match="cycle"):
        onnx_graph.sort(graph)

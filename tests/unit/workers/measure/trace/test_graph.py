"""Operators and the nodes of the ONNX graph that they hold."""

from __future__ import annotations

from typing import Any

from matrix.codec import from_json
from workers.measure.trace.graph import Graph, put_names, put_outputs
from workers.measure.trace.operators import Series


def node(name: str, kind: str, inputs: str, outputs: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "op_type": kind, "inputs": inputs.split(), "outputs": outputs.split(),
            "attributes": attributes}  # fmt: skip


def graph(*nodes: dict[str, Any], fixed: str = "w b") -> Graph:
    return from_json({"nodes": list(nodes), "fixed": fixed.split()}, Graph)


def series(path: str, order: int = 0, **facts: Any) -> Series:
    return Series(path, order, order, [1.0], 1.0, facts)


def held(one: Series) -> list[str]:
    return [found.name for found in one.facts.get("onnx_nodes", ())]


CONV_RELU = (node("conv", "Conv", "x w", "c", group=2), node("", "Relu", "c", "r"))


def test_a_name_of_the_graph() -> None:
    one = series("conv")
    put_names(graph(*CONV_RELU), [one])
    assert one.facts["onnx_op_type"] == "Conv"
    assert one.facts["onnx_inputs"] == ("x", "w")
    assert one.facts["onnx_outputs"] == ("c",)
    assert one.facts["onnx_attributes"] == {"group": 2}


def test_what_was_fused_belongs_to_who_names_it() -> None:
    one = series("r_nchwc", op_type="Conv")
    put_names(graph(*CONV_RELU), [one])
    assert held(one) == ["conv", "r"]
    assert (one.facts["name"], one.facts["onnx_op_type"]) == ("conv", "Conv")


def test_the_names_that_a_source_gives() -> None:
    one, other = series("MVN_3"), series("elsewhere")
    one.held = ("conv", "r")
    put_names(graph(*CONV_RELU), [one, other])
    assert held(one) == ["conv", "r"]
    assert "onnx_nodes" not in other.facts


def test_the_quantization_of_an_output_belongs_to_its_maker() -> None:
    nodes = (
        node("d1", "DequantizeLinear", "xq w b", "x"),
        node("one", "Conv", "x w", "c"),
        node("q2", "QuantizeLinear", "c w b", "cq"),
        node("d2", "DequantizeLinear", "cq w b", "cd"),
        node("two", "Relu", "cd", "r"),
        node("q3", "QuantizeLinear", "r w b", "rq"),
    )
    one, two = series("one"), series("two", 1)
    put_names(graph(*nodes), [one, two])
    assert held(one) == ["d1", "one", "q2"]
    assert held(two) == ["d2", "two", "q3"]


def test_what_needs_no_input_belongs_to_nobody() -> None:
    nodes = (node("fold", "Mul", "w b", "k"), node("add", "Add", "x k", "y"))
    one = series("add")
    put_names(graph(*nodes), [one])
    assert held(one) == ["add"]


def test_a_name_that_several_nodes_have_is_no_name() -> None:
    nodes = (node("same", "Relu", "x", "a"), node("same", "Relu", "a", "b"))
    one = series("same")
    put_names(graph(*nodes), [one])
    assert held(one) == []


def test_the_optimized_graph_tells_what_an_operator_makes() -> None:
    nodes = (
        node("div", "Div", "x w", "d"),
        node("erf", "Erf", "d", "e"),
        node("mul", "Mul", "e x", "y"),
        node("div2", "Div", "y w", "d2"),
        node("erf2", "Erf", "d2", "e2"),
        node("mul2", "Mul", "e2 y", "z"),
    )
    optimized = graph(node("Gelu", "Gelu", "x", "y"), node("Gelu", "Gelu", "y", "z"))
    first, second = series("Gelu", 0, op_type="Gelu"), series("Gelu", 1, op_type="Gelu")
    put_outputs(optimized, [second, first])
    put_names(graph(*nodes), [first, second])
    assert held(first) == ["div", "erf", "mul"]
    assert held(second) == ["div2", "erf2", "mul2"]
    assert first.facts["name"] == "mul"
    assert first.operator().type == "Gelu"


def test_a_graph_with_a_cycle_or_without_nodes_is_no_trouble() -> None:
    one = series("a")
    put_names(graph(node("a", "Add", "x z", "y"), node("b", "Add", "y", "z")), [one])
    assert "a" in held(one)
    put_names(graph(), [series("a")])

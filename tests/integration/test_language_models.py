"""4-bit weights of a tiny language model: built in the host, proven by the ladder, repeatable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from matrix.model import Plan
from tests.engines.hosted import SharedHost
from tests.engines.optimum import builder, plan_catalog
from workers.build.builder import Builder
from workers.runtimes.pool import Runtimes
from workers.sources import onnx_graph
from workers.verify.verifier import Verifier

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CATALOG = """
[[model]]
id = "tiny/llama"
task = "text-generation"
precision = ["fp32", "w4", "w4a16"]
[model.random]
architecture = "llama"
seed = 5
config = { hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2, \
num_attention_heads = 4, vocab_size = 512, max_position_embeddings = 64, initializer_range = 0.04 }
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("catalog")
    (folder / "catalog.toml").write_text(CATALOG, encoding="utf-8")
    return plan_catalog(folder / "catalog.toml", folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, optimum: SharedHost) -> Iterator[Builder]:
    with builder(tmp_path_factory.mktemp("builder"), optimum) as found:
        yield found


@pytest.mark.parametrize("label", ["mlas_cpu", "ov_cpu"])
def test_four_bit_language_models_are_verified(
    made: Builder, plan: Plan, label: str, tmp_path: Path
) -> None:
    runtimes = Runtimes(tmp_path / "logs")
    verifier = Verifier(runtimes, "parity")
    sizes = {}
    try:
        for precision in ("fp32", "w4", "w4a16"):
            tail = label if precision == "fp32" else f"{label}:{precision}"
            cell = next(cell for cell in plan.cells() if cell.id.endswith(f"@{tail}"))
            built = made.build(cell)
            proven = verifier.verify(built)  # raises if a rung fails
            print(precision, [rung.evidence for rung in proven.evidence if rung.name == "parity"])
            graph = onnx.load(str(built.folder / "model.onnx"))
            sizes[precision] = onnx_graph.weight_bytes(graph)
            assert onnx_graph.opset(graph) == (
                21 if label == "ov_cpu" and precision != "fp32" else 17
            )
            operators = onnx_graph.operators(graph)
            if precision != "fp32":
                plain = label == "ov_cpu"
                assert operators["com.microsoft:MatMulNBits"] == (0 if plain else 15)
                assert operators["DequantizeLinear"] == (15 if plain else 0)
                levels = {
                    item.i
                    for node in graph.graph.node
                    for item in node.attribute
                    if node.op_type == "MatMulNBits" and item.name == "accuracy_level"
                }
                assert levels == (set() if plain else {4})
            built.release()
    finally:
        verifier.close()
        runtimes.close()
    assert sizes["w4"] < 0.25 * sizes["fp32"]
    assert sizes["w4a16"] < sizes["w4"]

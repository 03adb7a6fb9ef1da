"""The stage that puts the weights of all graphs of a decoder into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.engines.sources import make_request
from workers import composition
from workers.composition import compose
from workers.engine import StageError, StageJob
from workers.optimum_engine import shared_weights
from workers.sources import model_file, onnx_graph

WIDE = np.random.default_rng(5).standard_normal((16, 32)).astype(np.float32)
OWN = WIDE[::-1].copy()
X = np.random.default_rng(6).standard_normal((2, 16)).astype(np.float32)
PORTS: Any = {"prefill": (["x"], ["y"]), "decode": (["x"], ["y"])}


def graph(*weights: Any) -> Any:
    """y = x @ the sum of all weights + 1."""
    names = [f"w{number}" for number in range(len(weights))]
    tensors = [numpy_helper.from_array(one, name) for one, name in zip(weights, names, strict=True)]
    nodes = [
        helper.make_node("Sum", names, ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "one"], ["y"]),
    ]
    found = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 32])],
        [*tensors, numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )  # fmt: skip
    made = helper.make_model(found, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def shared(tmp_path: Path, *, record: bool = True, **graphs: Any) -> dict[str, Any]:
    for name, one in graphs.items():
        model_file.save(one, tmp_path / "optimize" / name)
    (tmp_path / "export").mkdir()
    (tmp_path / "out").mkdir()
    if record:
        composition.write(compose(PORTS, model_file.MODEL), tmp_path / "export")
    inputs = {"optimize": tmp_path / "optimize", "export": tmp_path / "export"}
    job = StageJob("share", {}, make_request(), inputs, tmp_path / "out")
    return dict(shared_weights.run(job, tmp_path))


def outputs(file: Path) -> Any:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


def test_equal_weights_are_stored_once_and_the_graphs_compute_the_same(tmp_path: Path) -> None:
    facts = shared(tmp_path, prefill=graph(WIDE), decode=graph(WIDE, OWN))
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "composition.json", "prefill.onnx", "decode.onnx", "weights.data",
    }  # fmt: skip
    assert facts["weights"] == {"bytes": 2 * WIDE.nbytes, "apart": 3 * WIDE.nbytes}
    assert (out / "weights.data").stat().st_size == facts["weights"]["bytes"]
    assert np.allclose(outputs(out / "prefill.onnx"), X @ WIDE + 1, atol=1e-5)
    assert np.allclose(outputs(out / "decode.onnx"), X @ (WIDE + OWN) + 1, atol=1e-5)
    for name in ("prefill", "decode"):
        onnx.checker.check_model(str(out / f"{name}.onnx"))


def test_large_tensors_begin_at_a_page(tmp_path: Path) -> None:
    large = np.random.default_rng(7).standard_normal((16, 2048)).astype(np.float32)
    wide = graph(large)
    wide.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2048
    shared(tmp_path, prefill=graph(WIDE), decode=wide)
    model = onnx.load(tmp_path / "out" / "decode.onnx", load_external_data=False)
    where = onnx_graph.external(model.graph.initializer[0])
    assert where is not None
    assert (where.location, where.offset, where.length) == ("weights.data", 4096, large.nbytes)


def test_the_record_names_the_new_files_and_the_facts_the_old_ones(tmp_path: Path) -> None:
    facts = shared(tmp_path, prefill=graph(WIDE), decode=graph(WIDE))
    record = composition.read(tmp_path / "out")
    assert record is not None
    assert [one.model for one in record.components] == ["prefill.onnx", "decode.onnx"]
    assert [one["origin"] for one in facts["graphs"]] == [
        "prefill/model.onnx", "decode/model.onnx",
    ]  # fmt: skip


def test_small_tensors_stay_in_their_graph(tmp_path: Path) -> None:
    shared(tmp_path, prefill=graph(WIDE), decode=graph(WIDE))
    model = onnx.load(tmp_path / "out" / "decode.onnx", load_external_data=False)
    beside = {one.name: bool(one.external_data) for one in model.graph.initializer}
    assert beside == {"w0": True, "one": False}


def test_a_model_of_one_graph_has_nothing_to_share(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="only a model with components"):
        shared(tmp_path, record=False, prefill=graph(WIDE))

"""Which operators cost the outputs most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from tests.engines import graphs
from workers.optimum_engine import losses
from workers.sources import model_file, onnx_graph, runtime

RANDOM = np.random.default_rng(3)
SAMPLE = {"x": RANDOM.standard_normal((4, 8)).astype(np.float32)}
GAIN = np.array([1000, 1, 1, 1, 1, 1, 1, 1], np.float32)


def ready(nodes: list[Any], weights: dict[str, Any], folder: Path) -> Path:
    """The folder of a graph with the type of every tensor."""
    model_file.save(graphs.model(nodes, weights, out=["batch", 8]), folder / "ready")
    runtime.add_types(folder / "ready", folder / "types")
    return folder / "ready"


def convolution(folder: Path, *, quantized: bool) -> Path:
    """The folder of a Conv in float, or of one that stands between quantized tensors."""
    random = np.random.default_rng(7)
    weight = random.standard_normal((4, 8, 1)) * np.array([300, 1, 1, 0.01])[:, None, None]
    weights: dict[str, Any] = {"w": weight.astype(np.float32)}
    nodes = [helper.make_node("Unsqueeze", ["x", "last"], ["wide"])]
    weights["last"] = np.array([2])
    if quantized:
        for name, step in (("wide", 1e-4), ("made", 0.1)):
            own = [f"{name}/step", f"{name}/zero"]
            weights |= {own[0]: np.float32(step), own[1]: np.uint16(32768)}
            rest = [[f"{name}/whole", *own], [name, *own]]
            nodes += [
                helper.make_node("QuantizeLinear", rest[1], rest[0][:1]),
                helper.make_node("DequantizeLinear", rest[0], [f"{name}/near"]),
            ]
    end = "/near" if quantized else ""
    nodes.append(helper.make_node("Conv", [f"wide{end}", "w"], ["made"]))
    nodes.append(helper.make_node("Squeeze", [f"made{end}", "last"], ["y"]))
    model = graphs.model(nodes, weights, opset=21, out=["batch", 4])
    onnx_graph.sort(model.graph)
    model_file.save(model, folder)
    return folder


def test_graphs_are_compared_as_apps_open_them(tmp_path: Path) -> None:
    """ONNX Runtime quantizes weights that were left in float between quantized tensors."""
    random = np.random.default_rng(5)
    sets = [{"x": random.standard_normal((4, 8)).astype(np.float32)} for _ in range(3)]
    plain = convolution(tmp_path / "float", quantized=False)
    folder = convolution(tmp_path / "quantized", quantized=True)
    judge = losses.Judge(plain, sets, {"snr": 15.0})
    literal = runtime.session(folder / model_file.MODEL)
    exact = judge.between([runtime.run(literal, one) for one in sets])
    assert exact.snr > 60
    assert judge.distance(folder).snr < exact.snr - 10


def test_a_result_costs_what_the_outputs_lose_not_what_it_loses_itself(tmp_path: Path) -> None:
    """The large channel hides by its size what the others lose, until it is divided again."""
    nodes = [
        helper.make_node("Mul", ["x", "gain"], ["large"], name="large"),
        helper.make_node("Div", ["large", "gain"], ["even"], name="even"),
        helper.make_node("Cast", ["even"], ["cast"], name="cast", to=1),
        helper.make_node("Relu", ["cast"], ["y"], name="relu"),
    ]
    folder = ready(nodes, {"gain": GAIN}, tmp_path)
    most = float(np.abs(SAMPLE["x"]).max())
    ranges = dict.fromkeys(("even", "cast", "y"), (-most, most))
    ranges["large"] = -1000 * most, 1000 * most
    own = SAMPLE["x"] * GAIN
    step = 2000 * most / 255
    error = np.linalg.norm(np.rint(own / step) * step - own) / np.linalg.norm(own)
    assert error < 0.01
    found = losses.of_results(folder, ranges, [SAMPLE], tmp_path / "losses", 255, ["Cast"])
    assert found.keys() == {"large", "even", "relu"}
    assert found["large"] > 0.3
    assert found["even"] < 0.01
    assert found["relu"] < 0.01
    fine = losses.of_results(folder, ranges, [SAMPLE], tmp_path / "fine", 65535, ["Cast"])
    assert fine["large"] < found["large"] / 20


def test_neighbours_of_many_operators_are_rounded_together(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(100)]
    nodes = [helper.make_node("Neg", [before], [after], name=after)
             for before, after in zip(["x", *names], [*names, "y"], strict=True)]  # fmt: skip
    folder = ready(nodes, {}, tmp_path)
    ranges = dict.fromkeys([*names, "y"], (-4.0, 4.0)) | {"t6": (-4000.0, 4000.0)}
    found = losses.of_results(folder, ranges, [SAMPLE], tmp_path / "losses", 255)
    assert found.keys() == {*names, "y"}
    assert found["t6"] == found["t7"]
    assert found["t6"] > 0.9
    assert max(loss for name, loss in found.items() if name not in {"t6", "t7"}) < 0.02


def test_what_is_no_number_in_one_sample_counts_most(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Log", ["a"], ["y"], name="log"),
    ]
    folder = ready(nodes, {}, tmp_path)
    quiet = {"x": np.full((4, 8), 1e-6, np.float32)}
    loud = {"x": np.ones((4, 8), np.float32)}
    ranges = {"a": (0.0, 4.0), "y": (-16.0, 2.0)}
    found = losses.of_results(folder, ranges, [loud, quiet], tmp_path / "losses", 65535)
    assert found["abs"] == np.inf
    assert found["log"] < 0.01
    assert losses.of_results(folder, ranges, [loud], tmp_path / "one", 65535)["abs"] < 0.01


def test_what_all_outputs_have_in_common_hides_no_loss(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["turned"], name="neg"),
        helper.make_node("Sub", ["offset", "turned"], ["y"], name="sub"),
    ]
    folder = ready(nodes, {"offset": np.float32(100)}, tmp_path)
    sets = [{"x": one[None]} for one in SAMPLE["x"]]
    found = losses.of_results(folder, {"turned": (-4.0, 4.0)}, sets, tmp_path / "losses", 15)
    assert 0.05 < found["neg"] < 0.5

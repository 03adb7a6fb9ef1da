"""Single stages of the real engine, in this process: external data, datasets, clear errors."""

from __future__ import annotations

import json
import os
import shutil
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from matrix.model import Cell
from tests.engines.optimum import compare, plan_catalog
from tests.engines.stages import digests, run_stages
from workers.build.request import request_for
from workers.engine import Request, StageError, StageJob
from workers.optimum_engine import OptimumEngine, tracing
from workers.samples import files, parts
from workers.sources import load, model_file

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    # The tools' own deprecations are theirs to mend; the cell's log has them.
    pytest.mark.filterwarnings("default"),
]


PRECISIONS = ("fp32", "fp16", "w8a16", "w8a8", "w8", "w4", "w4a16")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    base = tmp_path_factory.mktemp("plan")
    plan = plan_catalog("demo", base, precision=PRECISIONS)
    return {cell.id: cell for cell in plan.cells()}


def bert(cells: dict[str, Cell], tail: str) -> Request:
    return request_for(cells[f"demo/bert-tiny:text-classification@{tail}"])


def with_model(request: Request, **changes: Any) -> Request:
    return replace(request, model={**request.model, **changes})


@pytest.mark.parametrize(
    ("tail", "floor"),
    [
        ("mlas_cpu:fp16", 0.99),
        ("mlas_cpu:w8", 0.95),
        ("mlas_cpu:w4", 0.95),
        ("ov_cpu:w4", 0.95),
        ("ov_cpu:w4a16", 0.95),
        ("mlas_cpu:w8a16", 0.95),
        ("qnn_npu:w8a8", 0.90),
        ("mlas_cpu", 0.9999),
    ],
)
def test_external_data_at_every_stage(
    cells: dict[str, Cell],
    tail: str,
    floor: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", 20_000)
    told = run_stages(bert(cells, tail), tmp_path)
    stages = [name for name in told if name not in {"inputs", "rewrites"}]
    for stage in stages:
        folder = tmp_path / stage
        assert (folder / "model.onnx").stat().st_size < 200_000
        assert (folder / "model.onnx.data").stat().st_size > 20_000
        assert not list(folder.glob("*_data"))
        assert not list(folder.glob(".*"))
    worst = compare(tmp_path / "export", tmp_path / stages[-1], tmp_path / "inputs")
    assert min(worst.values()) >= floor


def test_inputs_may_be_hard_links_and_stay_untouched(
    cells: dict[str, Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", 20_000)
    request = bert(cells, "qnn_npu")
    run_stages(request, tmp_path / "first")
    before = digests(tmp_path / "first")
    linked = tmp_path / "linked"
    for name in before:
        (linked / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(tmp_path / "first" / name, linked / name)
    engine = OptimumEngine()
    for spec in engine.plan(request).stages:
        if spec.name in {"optimize", "quantize"}:
            out = tmp_path / "again" / spec.name
            out.mkdir(parents=True)
            inputs = {name: linked / name for name in spec.inputs}
            engine.run(StageJob(spec.name, spec.params, request, inputs, out))
    assert digests(tmp_path / "first") == before
    again = digests(tmp_path / "again")
    assert again == {key: value for key, value in before.items() if key in again}


def test_a_folder_gives_what_its_files_hold(cells: dict[str, Cell], tmp_path: Path) -> None:
    folder = saved_model(cells, tmp_path / "model")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n", encoding="utf-8")
    (folder / "notes.md").write_text("not part of the model", encoding="utf-8")
    request = with_model(
        bert(cells, "mlas_cpu"), source={"kind": "folder", "ref": str(folder), "revision": None}
    )
    run_stages(request, tmp_path / "from_folder")
    run_stages(bert(cells, "mlas_cpu"), tmp_path / "from_seed")
    export = tmp_path / "from_folder" / "export"
    assert {path.name for path in export.iterdir()} == {"model.onnx", "config.json", "vocab.txt"}
    one = (export / "model.onnx").read_bytes()
    assert one == (tmp_path / "from_seed" / "export" / "model.onnx").read_bytes()
    assert (tmp_path / "from_folder" / "optimize" / "vocab.txt").is_file()


def test_files_that_change_after_the_plan_are_noticed(
    cells: dict[str, Cell], tmp_path: Path
) -> None:
    folder = saved_model(cells, tmp_path / "model")
    request = with_model(
        bert(cells, "mlas_cpu"), source={"kind": "folder", "ref": str(folder), "revision": None}
    )
    engine = OptimumEngine()
    spec = engine.plan(request).stages[0]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "seen": 1}), encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(StageError, match="changed since they were planned"):
        engine.run(StageJob(spec.name, spec.params, request, {}, out))
    assert not list(out.iterdir())


def test_a_dataset_takes_the_place_of_dummy_inputs(cells: dict[str, Cell], tmp_path: Path) -> None:
    file = tmp_path / "calibration.npz"
    ids = np.arange(1, 1 + 16 * 12).reshape(16, 1, 12)
    ids[5, 0, 8:] = 0  # a shorter text: token 0 is padding
    ids[6, 0, 4] = 0  # inside a text it is not
    np.savez(file, input_ids=ids)
    request = with_model(bert(cells, "qnn_npu"), dataset={"path": str(file)})
    # Nobody says how long its texts are: the arrays do, also for the inputs they leave out.
    told = run_stages(request, tmp_path / "out")
    found = told["inputs"]["samples"]
    assert (found["kind"], found["origin"]) == ("dataset", "calibration.npz")
    assert found["parts"] == {"fit": 10, "choose": 2, "judge": 4}
    assert told["quantize"]["samples"] == 10
    folder = tmp_path / "out" / "inputs"
    kept = [one for part in parts.PARTS for one in files.load(folder, "", part)]
    assert sorted(sample["input_ids"].tolist() for sample in kept) == ids.tolist()
    masks = {int(sample["input_ids"][0, 0]): sample["attention_mask"].tolist() for sample in kept}
    short = [[1] * 8 + [0] * 4]
    assert masks == {row * 12 + 1: short if row == 5 else [[1] * 12] for row in range(16)}
    assert told["optimize"]["static"]


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"task": "fortune-telling"}, "knows no task 'fortune-telling'", "text-classification"),
        ({"task": "object-detection"}, "cannot export bert for 'object-detection'", "fill-mask"),
        ({"source": {"kind": "random", "ref": "nosuch"}}, "not a Transformers architecture", ""),
        ({"source": {"kind": "random", "ref": "bark"}}, "does not support the architecture", ""),
        (
            {"source": {"kind": "random", "ref": "bert", "config": {"hidden_size": 30}}},
            "can be made",
            "config in the catalog",
        ),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(
    cells: dict[str, Cell], changes: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    request = with_model(bert(cells, "mlas_cpu"), **changes)
    with pytest.raises(StageError, match=message) as raised:
        run_stages(request, tmp_path)
    assert raised.value.failure == "EXPORT"
    assert hint in raised.value.hint
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("tail", "opset"), [("mlas_cpu", 23), ("qnn_npu", 21)])
def test_an_opset_beyond_the_exporter_computes_the_same(
    cells: dict[str, Cell], tail: str, opset: int, tmp_path: Path
) -> None:
    request = bert(cells, tail)
    for version in (20, opset):
        (tmp_path / str(version)).mkdir()
        own = replace(request, policy={**request.policy, "opset": version})
        told = run_stages(own, tmp_path / str(version))
        assert {facts["opset"] for name, facts in told.items() if "opset" in facts} == {version}
    newer = tmp_path / str(opset)
    worst = compare(tmp_path / "20" / "export", newer / "export", newer / "inputs")
    assert min(worst.values()) == pytest.approx(1.0, abs=1e-6)
    last = [name for name in told if name != "inputs"][-1]
    worst = compare(newer / "export", newer / last, newer / "inputs")
    assert min(worst.values()) > 0.95


@pytest.mark.parametrize("name", ["demo/bert-tiny:text-classification", "demo/t5-tiny:text2text"])
def test_torch_needs_no_values_of_weights_to_infer_shapes(
    cells: dict[str, Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    request = request_for(next(cells[one] for one in cells if one.startswith(name)))
    spec = next(one for one in OptimumEngine().plan(request).stages if one.name == "export")
    made = []
    for most in (1 << 60, -1):
        monkeypatch.setattr(tracing, "LARGEST_SEEN", most)
        out = tmp_path / str(most)
        out.mkdir()
        OptimumEngine().run(StageJob("export", spec.params, request, {}, out))
        made.append(digests(out))
    assert made[0] == made[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_beyond_two_gigabytes(cells: dict[str, Cell], tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 20 * 1024**3:
        pytest.skip("needs 20 GB of disk")
    config = {
        "hidden_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
        "intermediate_size": 1024, "vocab_size": 540_000, "max_position_embeddings": 64,
    }  # fmt: skip
    source = {"kind": "random", "ref": "bert", "seed": 1, "config": config}
    for tail in ("qnn_npu", "mlas_cpu", "mlas_cpu:fp16", "mlas_cpu:w8", "mlas_cpu:w4"):
        request = with_model(bert(cells, tail), source=source, task="feature-extraction")
        root = tmp_path / tail.replace(":", "-")
        told = run_stages(request, root)
        assert (root / "export" / "model.onnx.data").stat().st_size > 2 * 1024**3
        last = [name for name in told if name != "inputs"][-1]
        worst = compare(root / "export", root / last, root / "inputs")
        assert min(worst.values()) > (0.95 if tail.endswith("w4") else 0.99)
        shutil.rmtree(root)


def saved_model(cells: dict[str, Cell], folder: Path) -> Path:
    """The weights of the demo's bert as a checkpoint folder."""
    from workers.sources import load

    model, _ = load.load(bert(cells, "mlas_cpu"), None, "text-classification")
    model.save_pretrained(folder)
    return folder


def built(request: Request, folder: Path, build: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The last graph of a request with these build options, and the facts of its stages."""
    folder.mkdir()
    told = run_stages(replace(request, policy={**request.policy, "build": build}), folder)
    last = [name for name in told if name != "inputs"][-1]
    return model_file.load(folder / last / model_file.MODEL), told


def test_build_options_change_the_graph(cells: dict[str, Cell], tmp_path: Path) -> None:
    request = bert(cells, "qnn_npu")
    plain, _ = built(request, tmp_path / "plain", {})
    options = {"per_channel": False, "samples": 3, "calibration": "percentile", "symmetric": True}
    other, told = built(request, tmp_path / "other", options)
    assert _scales(plain) > _scales(other) == 1
    assert told["quantize"]["samples"] == 3
    middle = 1 << 15
    assert _offsets(plain).count(middle) < _offsets(other).count(middle)
    inputs = {"optimize": tmp_path / "plain" / "optimize"}
    params = {"precision": "fp16", "blocked_ops": ["Softmx"]}
    (tmp_path / "out").mkdir()
    with pytest.raises(StageError, match="there is no operator 'Softmx'") as raised:
        OptimumEngine().run(StageJob("quantize", params, request, inputs, tmp_path / "out"))
    assert "Softmax" in raised.value.hint


def test_a_single_pass_of_the_next_level(cells: dict[str, Cell], tmp_path: Path) -> None:
    request = bert(cells, "mlas_cpu")
    found = {}
    for name, build in (
        ("basic", {"optimization": "basic"}),
        ("one", {"passes": ["GeluFusionL2"]}),
        ("extended", {"optimization": "extended"}),
    ):
        graph, _ = built(request, tmp_path / name, build)
        found[name] = {node.op_type for node in graph.graph.node} & {"Erf", "Gelu", "BiasGelu"}
    assert found == {"basic": {"Erf"}, "one": {"Gelu"}, "extended": {"BiasGelu"}}


def _scales(model: Any) -> int:
    """The most scales that one weight has."""
    shapes = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "DequantizeLinear"]
    return max([1, *(int(dims[0]) for node in nodes if (dims := shapes.get(node.input[1])))])


def _offsets(model: Any) -> list[int]:
    """The zero points of activations."""
    values = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return [int(onnx.numpy_helper.to_array(values[node.input[2]]).ravel()[0]) for node in nodes]


def test_seeding_does_not_describe_the_stack_for_devices_that_compute_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    def refuse() -> None:
        raise AssertionError("it takes longer than a sample")

    with monkeypatch.context() as patched:
        patched.setattr(traceback, "format_stack", refuse)
        load.seed_everything(5)
    found = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), found)

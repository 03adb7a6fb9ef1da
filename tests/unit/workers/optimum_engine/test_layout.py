"""Which stages a cell has, and which targets share them."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workers.optimum_engine
from matrix.digest import value_digest
from matrix.vocabulary import EXTENDED_PASSES
from tests.engines.sources import make_request
from workers.engine import Request, StageError, StageSpec
from workers.optimum_engine import OptimumEngine

NPU: dict[str, Any] = {"precision": "w8a16", "static_shapes": True}


def stages(request: Request) -> dict[str, StageSpec]:
    return {spec.name: spec for spec in OptimumEngine().plan(request).stages}


def test_targets_with_equal_policies_share_everything() -> None:
    several: list[dict[str, Any]] = [{}, NPU, {"optimization": "extended"}]
    for changes in several:
        one = stages(make_request(label="one", **changes))
        assert one == stages(make_request(label="two", **changes))


def test_what_a_policy_lists() -> None:
    assert list(stages(make_request())) == ["export", "inputs", "optimize"]
    assert list(stages(make_request(optimization="disabled"))) == ["export", "inputs"]
    calibrated = ["export", "inputs", "optimize", "rewrites", "quantize"]
    assert list(stages(make_request(**NPU))) == calibrated
    plain = stages(make_request(optimization="disabled", precision="fp16"))
    assert list(plain) == ["export", "inputs", "quantize"]
    assert plain["quantize"].inputs == ("export", "inputs")


def test_the_export_and_the_inputs_know_nothing_of_targets() -> None:
    base = stages(make_request())
    several = [NPU, {"precision": "w8"}, {"blocked_ops": ["Erf"]}, {"quantizer": None}]
    for changes in several:
        found = stages(make_request(**changes))
        assert (found["export"], found["inputs"]) == (base["export"], base["inputs"])


def test_samples_key_only_what_reads_them() -> None:
    assert stages(make_request())["optimize"].inputs == ("export",)
    assert stages(make_request(**NPU))["optimize"].inputs == ("export", "inputs")
    assert stages(make_request(**NPU))["quantize"].inputs == ("optimize", "inputs", "rewrites")
    assert stages(make_request(precision="w8"))["quantize"].inputs == ("optimize",)


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({"opset": 18}, "export"),
        ({"shapes": {"sequence_length": 32}}, "inputs"),
        ({"optimization": "extended"}, "optimize"),
        ({"static_shapes": False}, "optimize"),
        ({"blocked_passes": ["GeluFusion"]}, "optimize"),
        ({"precision": "w8a8"}, "quantize"),
        ({"build": {"samples": 4}}, "inputs"),
        ({"build": {"optimization": "extended"}}, "optimize"),
        ({"build": {"passes": ["BiasGeluFusion"]}}, "optimize"),
        ({"build": {"without_passes": ["ConstantFolding"]}}, "optimize"),
        ({"build": {"calibration": "percentile"}}, "quantize"),
        ({"build": {"per_channel": False}}, "quantize"),
        ({"build": {"symmetric": True}}, "quantize"),
        ({"build": {"float_ops": ["Softmax"]}}, "quantize"),
        ({"build": {"requantize": False}}, "quantize"),
        ({"parity": {"snr": 18.0}}, "quantize"),
        ({"blocked_ops": ["Erf"]}, "quantize"),
        ({"rewrites": ["pools"]}, "rewrites"),
        ({"channels": ["Conv"]}, "quantize"),
    ],
)
def test_a_change_shows_in_its_stage_alone(changes: dict[str, Any], stage: str) -> None:
    base, found = stages(make_request(**NPU)), stages(make_request(**{**NPU, **changes}))
    assert [name for name in base if base[name] != found[name]] == [stage]


def test_four_bits_key_their_form_and_keep_weights_where_they_can_be_found() -> None:
    request = make_request(precision="w4", quantizer="MatMulNBits", optimization="extended")
    found = stages(request)
    weights = {"form": "MatMulNBits", "block_size": 32, "symmetric": False}
    assert found["quantize"].params == {"precision": "w4", "weights": weights}
    assert {"AttentionFusion", "EmbedLayerNormFusion"} <= set(
        found["optimize"].params["blocked_passes"]
    )
    rounding = stages(make_request(precision="w4", quantizer="MatMulNBits", accuracy_level=4))[
        "quantize"
    ]
    assert rounding.params["weights"] == {**weights, "accuracy_level": 4}
    build = {"block_size": 128, "symmetric": True}
    other = stages(make_request(precision="w4a16", quantizer="DequantizeLinear", build=build))
    weights = {"form": "DequantizeLinear", "block_size": 128, "symmetric": True}
    assert other["quantize"].params == {"precision": "w4a16", "weights": weights}
    assert other["quantize"].inputs == ("optimize", "inputs")


def test_a_pass_of_the_next_level_runs_alone_beside_the_basic_ones() -> None:
    build = {"passes": ["BiasGeluFusion", "GeluFusionL2"], "without_passes": ["ConstantFolding"]}
    params = stages(make_request(build=build))["optimize"].params
    assert params["level"] == "extended"
    assert set(params["blocked_passes"]) == {"ConstantFolding", *EXTENDED_PASSES} - {
        "BiasGeluFusion", "GeluFusionL2"}  # fmt: skip


def test_what_the_catalog_sets_is_not_tried_otherwise() -> None:
    def steps(precision: str = "w8a16", **build: Any) -> Any:
        request = make_request(**{**NPU, "precision": precision}, build=build)
        return stages(request)["quantize"].params.get("requantize")

    every = ["percentile", "wide", "wider", "float"]
    assert steps() == every
    assert steps(calibration="minmax") == every[1:]
    assert steps(per_channel=True, float_ops=["Softmax"]) == ["percentile", "wide", "wider"]
    assert steps("w8a8") == ["percentile", "smooth", "wide", "wider", "float"]
    assert steps(requantize=False) is None
    assert "parity" not in stages(make_request(precision="w8"))["quantize"].params


def test_the_threshold_is_the_catalogs_or_that_of_the_precision() -> None:
    def limit(precision: str, **parity: float) -> Any:
        request = make_request(precision=precision, parity=parity)
        return stages(request)["quantize"].params["parity"]

    usual = {"task": "fill-mask", "snr": 15.0, "agreement": 0.97, "floor": 0.002}
    assert limit("w8a16") == usual
    assert limit("w8a16", max_abs=0.5) == {**usual, "max_abs": 0.5}
    assert limit("w8a16", snr=10.0) == {**usual, "snr": 10.0}


def test_unused_options_key_nothing() -> None:
    calibrated = {
        "calibration": "percentile", "per_channel": False, "symmetric": True, "requantize": False
    }  # fmt: skip
    assert stages(make_request(build=calibrated)) == stages(make_request())
    off: dict[str, Any] = {"optimization": "disabled", "static_shapes": True}
    assert stages(make_request(**off)) == stages(make_request(**off, blocked_passes=["X"]))
    passes = stages(make_request(blocked_passes=["B", "A"]))
    assert passes == stages(make_request(blocked_passes=["A", "B"]))


@pytest.mark.parametrize(
    ("changes", "failure", "words"),
    [
        ({"precision": "w2"}, "QUANTIZE", "no precision 'w2'"),
        ({"precision": "w4", "quantizer": "qnn"}, "QUANTIZE", "no form of 4-bit weights 'qnn'"),
        ({"precision": "w8a16", "quantizer": "abacus"}, "QUANTIZE", "no quantizer 'abacus'"),
        ({"optimization": "all"}, "OPTIMIZE", "no optimization level 'all'"),
        ({"shapes": {"sequence": 3}}, "OPTIMIZE", "unknown shape 'sequence'"),
    ],
)
def test_a_policy_that_cannot_be_done_fails_in_the_plan(
    changes: dict[str, Any], failure: str, words: str
) -> None:
    with pytest.raises(StageError, match=words) as raised:
        stages(make_request(**changes))
    assert raised.value.failure == failure
    assert raised.value.hint


def test_a_dataset_is_its_content(tmp_path: Path) -> None:
    params = []
    for name, value in (("a.npz", 1), ("b.npz", 1), ("c.npz", 2)):
        np.savez(tmp_path / name, x=np.full((2, 3), value))
        request = make_request(dataset={"path": str(tmp_path / name), "samples": 2})
        params.append(stages(request)["inputs"].params)
    assert params[0] == params[1] != params[2]
    assert "path" not in params[0]["dataset"]
    with pytest.raises(StageError, match="cannot be read"):
        stages(make_request(dataset={"path": str(tmp_path / "none.npz")}))
    with pytest.raises(StageError, match="has no path"):
        stages(make_request(dataset={"name": "imagenet"}))


def test_every_key_is_plain_json_and_every_tool_is_known() -> None:
    engine = OptimumEngine()
    tools = engine.tools()
    for spec in stages(make_request(**NPU)).values():
        assert value_digest(dict(spec.params))
        assert set(spec.tools) <= set(tools)
    assert all(tools.values())


def test_a_bare_interpreter_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = OptimumEngine()
    monkeypatch.setattr(engine, "tools", lambda: {"torch": "", "onnx": "1"})
    with pytest.raises(StageError, match="lacks torch") as raised:
        engine.plan(make_request())
    assert raised.value.failure == "UNSUPPORTED"


def test_importing_the_engine_imports_nothing_heavy() -> None:
    own = {"matrix", "machine", "workers"}
    for file in Path(workers.optimum_engine.__file__).parent.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.partition(".")[0]
                assert root in own or root in sys.stdlib_module_names, f"{file.name}: {name}"


def test_a_decoder_with_a_cache_shares_its_weights_last() -> None:
    def told(task: str, **policy: Any) -> dict[str, StageSpec]:
        request = make_request(**policy)
        return stages(replace(request, model={**request.model, "task": task}))

    found = told("text-generation-with-past", **NPU)
    assert list(found) == ["export", "inputs", "optimize", "rewrites", "quantize", "share"]
    assert (found["share"].inputs, found["share"].per_component) == (("quantize", "export"), False)
    plain = told("causal-lm-with-past", optimization="disabled")
    assert plain["share"].inputs == ("export",)
    for task in ("text-generation", "feature-extraction-with-past"):
        assert "share" not in told(task)

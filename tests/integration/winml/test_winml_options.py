"""Build options of a catalog are the settings of `winml build -c`, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrix import vocabulary
from tests.engines.hosted import SharedHost
from tests.engines.winml import (
    FLAGS,
    builder,
    cell,
    folder_entry,
    model_digests,
    model_folder,
    plan_of,
    run,
    winml_python,
)
from tests.engines.winml_command import CommandLine
from workers.errors import BuildFailed

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

SWITCHES = """
from winml.modelkit.optim.pipes import get_all_capabilities
print(*{one.python_name for one in get_all_capabilities().values()})
"""
OPTIONS = """
[model.build]
flags = ["gelu_fusion"]
without_flags = ["constant_folding"]
analyzer = false
samples = 3
calibration = "percentile"
per_channel = true
symmetric = true
"""


def test_build_options_are_those_of_a_configuration(
    models: Path, winml: CommandLine, host: SharedHost, tmp_path: Path
) -> None:
    folder = model_folder("bert", models)
    file = tmp_path / "config.json"
    ep, device, *precision = FLAGS["qnn_npu"]
    named = ("-m", str(folder), "-o", str(file), "--ep", ep, "--device", device)
    winml.run("config", *named, *precision, "--no-compile")
    config = json.loads(file.read_text("utf-8"))
    config["auto"] = False
    config["optim"] = {**config["optim"], "gelu_fusion": True, "constant_folding": False}
    config["quant"] |= {
        "model_id": str(folder), "samples": 3, "calibration_method": "percentile",
        "per_channel": True, "symmetric": True,
    }  # fmt: skip
    file.write_text(json.dumps(config), encoding="utf-8")
    expected = winml.build(folder, tmp_path / "reference", ["qnn_npu"], "-c", str(file))
    entry = folder_entry("bert", folder)
    with builder(tmp_path, host=host) as engine:
        plain = engine.build(cell(plan_of({"bert": entry}, tmp_path), "qnn_npu"))
        built = engine.build(cell(plan_of({"bert": entry + OPTIONS}, tmp_path), "qnn_npu"))
    assert model_digests(built) == expected["qnn_npu"]
    assert model_digests(built) != model_digests(plain)
    ran = {run.stage for run in built.stages if not run.reused}
    assert ran == {"optimize", "quantize"}


def test_an_operator_stays_in_float(models: Path, host: SharedHost, tmp_path: Path) -> None:
    entry = folder_entry("bert", model_folder("bert", models))
    options = '\n[model.build]\nfloat_ops = ["{}"]\n'
    with builder(tmp_path, host=host) as engine:
        counts = {}
        for name in ("", "Gemm"):
            text = entry + (options.format(name) if name else "")
            built = engine.build(cell(plan_of({"bert": text}, tmp_path), "qnn_npu"))
            facts = {one["stage"]: one["facts"] for one in built.manifest["stages"]}
            counts[name] = facts["quantize"]["nodes"]
        assert counts["Gemm"] < counts[""]
        wrong = plan_of({"bert": entry + options.format("Gemmm")}, tmp_path)
        with pytest.raises(BuildFailed, match="there is no operator 'Gemmm'"):
            engine.build(cell(wrong, "qnn_npu"))


def test_every_switch_is_one_of_winml() -> None:
    assert set(run([str(winml_python()), "-c", SWITCHES]).split()) == set(vocabulary.FLAGS)

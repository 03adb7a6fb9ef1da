"""What a catalog may change about how an engine builds."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from matrix.build_options import ALL
from matrix.catalog import load_catalog
from matrix.errors import PlanError
from matrix.model import Policy
from matrix.policy import Flags, overrides_of, policies
from matrix.targets import load_targets
from matrix.vocabulary import BASIC_PASSES, EXTENDED_PASSES

HEAD = """
[[model]]
id = "a/b"
task = "fill-mask"
"""
TARGETS = load_targets()


def policy(tmp_path: Path, text: str, label: str = "qnn_npu", engine: str = "optimum") -> Policy:
    (tmp_path / "c.toml").write_text(HEAD + text)
    (model,) = load_catalog("c.toml", base=tmp_path, targets=TARGETS, engine=engine).models
    target = next(row for row in TARGETS if row.label == label)
    (found,) = policies(overrides_of(model, target), target, Flags())
    return found


def faults(tmp_path: Path, text: str, engine: str = "optimum") -> str:
    with pytest.raises(PlanError) as caught:
        policy(tmp_path, text, engine=engine)
    return str(caught.value)


def test_nothing_is_changed_by_default(tmp_path: Path) -> None:
    assert policy(tmp_path, "").build == {}


def test_a_target_adds_to_its_model(tmp_path: Path) -> None:
    text = """
        [model.build]
        samples = 16
        per_channel = false
        [model.target."qnn_*".build]
        per_channel = true
        float_ops = ["Softmax", "Erf", "Softmax"]
    """
    both: Mapping[str, Any] = {
        "samples": 16, "per_channel": True, "float_ops": ["Erf", "Softmax"]}  # fmt: skip
    assert policy(tmp_path, text).build == both
    assert policy(tmp_path, text, "mlas_cpu").build == {"samples": 16, "per_channel": False}


def test_defaults_are_inherited_option_by_option(tmp_path: Path) -> None:
    text = "[model.build]\nsamples = 4\n[defaults.build]\nsamples = 16\nsymmetric = true\n"
    assert policy(tmp_path, text).build == {"samples": 4, "symmetric": True}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('calibartion = "minmax"', "unknown key 'calibartion' (did you mean calibration?)"),
        ('calibration = "entropie"', "unknown calibration 'entropie'"),
        ('flags = ["gelu-fusion"]', "did you mean gelu_fusion"),
        ('flags = ["gelu_fusion"]\nwithout_flags = ["gelu_fusion"]', "in flags and in without"),
        ('passes = ["gelu-fusion"]', "unknown value 'gelu-fusion' in passes (did you mean"),
        ('without_passes = ["TransposeOptimiser"]', "did you mean TransposeOptimizer"),
        ('passes = ["TransposeOptimizer"]', "unknown value 'TransposeOptimizer' in passes"),
        ("samples = 0", "samples must be between 1 and 4096"),
        ("block_size = 48", "block_size must be a power of two, not 48"),
        ("block_size = 8", "block_size must be between 16 and 256"),
        ('per_channel = "yes"', "per_channel must be true or false"),
        ('float_ops = ["/Softmax_1"]', "is not the name of an operator"),
        ('passes = ["BiasGeluFusion"]\noptimization = "disabled"', "goes with optimization basic"),
    ],
)
def test_an_option_that_does_not_exist_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    assert problem in faults(tmp_path, f"[model.build]\n{line}\n")
    told = faults(tmp_path, f"[model.target.mlas_cpu.build]\n{line}\n")
    assert problem in told
    assert "target mlas_cpu: build" in told


def test_options_are_those_of_the_engine(tmp_path: Path) -> None:
    told = faults(tmp_path, '[model.build]\npasses = ["BiasGeluFusion"]\n', engine="winml")
    assert "the engine winml has no build option passes (it is one of: optimum, tabular)" in told
    told = faults(tmp_path, '[model.build]\ncalibration = "entropy"\n')
    assert "the engine optimum has no calibration 'entropy'" in told
    both = policy(tmp_path, "[model.build]\nsamples = 4\n", engine="winml")
    assert both.build == {"samples": 4}
    skipped = '[model.build]\npasses = ["BiasGeluFusion"]\n[defaults]\nskip = "no"\n'
    assert policy(tmp_path, skipped, engine="winml").build


def test_every_option_is_described() -> None:
    assert all(option.help for option in ALL.values())


def libraries() -> Iterator[Path]:
    spec = find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin
    yield from (Path(spec.origin).parent / "capi").glob("*onnxruntime*")


def test_every_pass_is_one_of_onnx_runtime() -> None:
    # The compiler writes this one into instructions; a test of the optimize stage blocks it.
    missing = {*BASIC_PASSES, *EXTENDED_PASSES} - {"ConvActivationFusion"}
    for path in libraries():
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            missing -= {name for name in missing if data.find(name.encode() + b"\0") >= 0}
    assert missing == set()

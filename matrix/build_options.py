"""What a catalog may change about how an engine builds: the table `build` of a model or a target.

An option that the engine does not have is a problem with the nearest name; none is ever ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matrix.nearest import hint, quote
from matrix.reader import Entry

LEVELS = ("disabled", "basic", "extended")
CALIBRATIONS = ("minmax", "percentile")
MOST_SAMPLES = 4096

BASIC_PASSES = (
    "CastElimination", "ClipQuantRewrite", "CommonSubexpressionElimination", "ConstantFolding",
    "ConstantSharing", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion", "DivMulFusion",
    "DoubleQDQPairsRemover", "EliminateDropout", "EliminateIdentity", "EliminateSlice",
    "EnsureUniqueDQForNodeUnit", "ExpandElimination", "FuseReluClip", "GeluFusionL1",
    "GemmSumFusion", "GemmTransposeFusion", "LabelEncoderFusion", "LayerNormFusionL1",
    "MatMulAddFusion", "MatMul_BatchNormalization_Fusion", "NoopElimination", "NotWhereFusion",
    "Pad_Fusion", "PreShapeNodeElimination", "QDQPropagationTransformer", "ReluQuantRewrite",
    "ReshapeFusion", "TransposeOptimizer", "UnsqueezeElimination", "WhereDummyDq",
)  # fmt: skip
EXTENDED_PASSES = (
    "AttentionFusion", "BiasDropoutFusion", "BiasGeluFusion", "BiasSoftmaxFusion",
    "DynamicQuantizeMatMulFusion", "EmbedLayerNormFusion", "FastGeluFusion", "GatherToSliceFusion",
    "GeluFusionL2", "GemmActivationFusion", "GroupQueryAttentionFusion", "LayerNormFusionL2",
    "MatMulActivationFusion", "MatMulIntegerToFloatFusion", "MatMulScaleFusion",
    "MatmulTransposeFusion", "QDQFinalCleanupTransformer", "QDQS8ToU8Transformer",
    "QDQSelectorActionTransformer", "QuickGeluFusion", "SimplifiedLayerNormFusion",
    "SkipLayerNormFusion",
)  # fmt: skip
"""ONNX Runtime's names. It ignores a name that it does not know, so they are checked here."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: how it is read, and its line in the reference."""

    read: Callable[[Entry, str], Any]
    help: str


def _choice(values: tuple[str, ...]) -> Callable[[Entry, str], Any]:
    return lambda entry, key: entry.choice(key, values)


def _some(values: tuple[str, ...]) -> Callable[[Entry, str], Any]:
    def read(entry: Entry, key: str) -> Any:
        given = entry.texts(key)
        for name in given or ():
            if name not in values:
                entry.bad(f"unknown value {quote(name)} in {key}", hint(name, values))
        return None if given is None else sorted(set(given))

    return read


def _operators(entry: Entry, key: str) -> Any:
    given = entry.texts(key)
    for name in given or ():
        if not name.isidentifier():
            entry.bad(f"{quote(name)} in {key} is not the name of an operator", "e.g. Softmax")
    return None if given is None else sorted(set(given))


OPTIMUM: Mapping[str, Option] = {
    "optimization": Option(
        _choice(LEVELS), "ONNX Runtime's offline level: `disabled`, `basic` or `extended`"
    ),
    "passes": Option(
        _some(EXTENDED_PASSES), "passes of the level `extended` that run beside the basic ones"
    ),
    "without_passes": Option(
        _some((*BASIC_PASSES, *EXTENDED_PASSES)), "passes of ONNX Runtime that do not run"
    ),
    "calibration": Option(
        _choice(CALIBRATIONS),
        "activation ranges: `minmax` (default), or `percentile` (without the outermost 0.01 %)",
    ),
    "samples": Option(
        lambda entry, key: entry.integer(key, 1, MOST_SAMPLES), "calibration samples; default 8"
    ),
    "per_channel": Option(
        lambda entry, key: entry.flag(key), "a scale for each channel of a weight; default true"
    ),
    "symmetric": Option(
        lambda entry, key: entry.flag(key), "activation ranges symmetric around 0; default false"
    ),
    "float_ops": Option(_operators, "operators that stay in floating point"),
}
OF_ENGINES: Mapping[str, Mapping[str, Option]] = {"optimum": OPTIMUM}


def read_build(entry: Entry) -> dict[str, Any] | None:
    """The table `build` of an entry; a problem for every option that no engine has."""
    table = entry.table("build")
    if table is None:
        return None
    inner = Entry(table, f"{entry.where}: build", entry.problems)
    found = {}
    for options in OF_ENGINES.values():
        for name, option in options.items():
            value = option.read(inner, name)
            if value is not None:
                found[name] = value
    inner.close()
    if "passes" in found and found.get("optimization") in {"disabled", "extended"}:
        inner.bad("passes goes with optimization basic", "leave one of the two out")
    return found


def fault(engine: str, build: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why an engine cannot take these options, and what to do about it."""
    options = OF_ENGINES.get(engine, {})
    for name in build:
        if name not in options:
            able = ", ".join(one for one, known in OF_ENGINES.items() if name in known)
            return f"the engine {engine} has no build option {name}", f"it is one of: {able}"
    return None

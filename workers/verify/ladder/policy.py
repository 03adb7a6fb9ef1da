"""The rung `policy`: the model has what the cell says and the target allows."""

from __future__ import annotations

from collections.abc import Mapping

from matrix.policy import FOUR_BITS, takes_qdq
from matrix.verification import MORE_BITS
from workers.build.claim import Claim
from workers.verify.ladder.observed import Json, Judgement, Observed, not_run

_Q = {"QuantizeLinear", "DequantizeLinear"}
_INTEGER = (
    "QLinear", "MatMulInteger", "ConvInteger", "DynamicQuantize", "MatMulNBits", "QAttention",
    "QGemm", "QMoE",
)  # fmt: skip
"""Prefixes of the names of operators that compute on integers without QDQ."""
_SIXTEEN = {"uint16", "int16"}
_EIGHT = {"uint8", "int8"}
_FOUR = {"uint4", "int4"}
ADVICE = (
    "the cell's log and modelmill explain CELL show what the build did; try another precision or "
    "opset in the catalog"
)
_NEARLY_ALL = 0.9


def judge(claim: Claim, observed: Observed) -> Judgement:
    """Compare content and label of every model of the package."""
    if claim.profile is not None:
        return _compiled(claim, observed)
    problems, evidence = [], {}
    for model, found in observed.models.items():
        if found["problems"]:
            continue  # integrity reports it
        said = [
            *_label(claim, found),
            *_target(claim, found),
            *_blocked(claim, found, observed.exported.get(model)),
        ]
        problems += [f"{model}: {text}" for text in said]
        evidence[model] = {key: found[key] for key in ("activations", "weights", "bytes")}
    if observed.passes is not None and (lost := set(claim.blocked_passes) - set(observed.passes)):
        problems.append(
            f"the pass {min(lost)} is blocked for {claim.target.label}, "
            "but the build did not block it"
        )
    found = {"models": evidence, "precision": claim.precision}
    if problems:
        problems.append(ADVICE)
    elif len(evidence) < max(len(observed.models), 1):
        return not_run("integrity failed: there is a model that cannot be read", found)
    return not problems, problems, found


def _compiled(claim: Claim, observed: Observed) -> Judgement:
    """A compiled model holds contexts; their content was judged in the portable package."""
    label = claim.profile.label if claim.profile else ""
    contexts = {model: found.get("contexts", []) for model, found in observed.models.items()}
    problems = [
        f"{model}: is labelled {label}, but holds no compiled context"
        for model, nodes in contexts.items()
        if not nodes
    ]
    return not problems, problems, {"contexts": contexts, "profile": label}


def _label(claim: Claim, found: Json) -> list[str]:
    precision = claim.precision
    integers = [op for op in found["ops"] if op.rpartition(":")[2].startswith(_INTEGER)]
    if precision in {"w8a16", "w8a8"}:
        return _qdq(precision, found)
    if precision == "w8":
        if found["activations"]:
            return ["is labelled w8 (only weights), but its activations are quantized too"]
        return [] if found["weights"] or integers else ["is labelled w8, but no weight is int8"]
    if precision in FOUR_BITS:
        return _four_bits(precision, found)
    pairs = sum(found["activations"].values()) + sum(found["weights"].values())
    if pairs or integers:
        what = f"{pairs} quantized tensors" if pairs else f"the operator {integers[0]}"
        return [f"is labelled {precision}, but contains {what}"]
    return _floats(precision, found["bytes"])


def _four_bits(precision: str, found: Json) -> list[str]:
    if found["activations"]:
        return [f"is labelled {precision} (only weights), but its activations are quantized too"]
    if not found["weights"].keys() & _FOUR:
        return [f"is labelled {precision}, but no weight has 4 bits"]
    sizes = found["bytes"]
    if precision == "w4a16" and sizes.get("float", 0) > sizes.get("float16", 0):
        return [f"is labelled w4a16, but {sizes['float']:,} bytes of its weights are float32"]
    return []


def _floats(precision: str, sizes: Mapping[str, int]) -> list[str]:
    halves, floats = sizes.get("float16", 0), sizes.get("float", 0)
    if precision == "fp16" and halves < _NEARLY_ALL * (halves + floats):
        return [f"is labelled fp16, but {floats:,} of {halves + floats:,} weight bytes are float32"]
    if precision == "fp32" and halves > floats:
        return [f"is labelled fp32, but {halves:,} weight bytes are float16"]
    return []


def _qdq(precision: str, found: Json) -> list[str]:
    # A table that rows are taken from has the type of the activations that it becomes.
    activations, weights = found["activations"], found["factors"] or found["weights"]
    count = sum(activations.values())
    if not count:
        return [f"is labelled {precision}, but has no QuantizeLinear: it is not quantized"]
    wanted = _SIXTEEN if precision == "w8a16" else _EIGHT
    right = sum(activations.get(name, 0) for name in wanted)
    problems = []
    if count - right > MORE_BITS * count:
        shown = ", ".join(f"{n} {name}" for name, n in sorted(activations.items()))
        problems.append(f"is labelled {precision}, but its activations are {shown}")
    wide = {name for name in weights if name not in _EIGHT | {"int32", "uint4", "int4"}}
    narrow = sum(weights.get(name, 0) for name in _EIGHT)
    if wide and narrow < (1 - MORE_BITS) * sum(weights.get(name, 0) for name in _EIGHT | wide):
        problems.append(f"is labelled {precision}, but its weights are {', '.join(sorted(wide))}")
    return problems


def _target(claim: Claim, found: Json) -> list[str]:
    target = claim.target
    problems = []
    refused = _Q if not takes_qdq(target) else set() if target.activations else {"QuantizeLinear"}
    if any(op.rpartition(":")[2] in refused for op in found["ops"]):
        why = target.why or f"{target.provider} quantizes by itself"
        problems.append(f"has QDQ nodes, which {target.label} must not get: {why}")
    if claim.static_shapes and found["open_inputs"]:
        problems.append(
            f"input {found['open_inputs'][0]} has an open dimension; {target.label} needs fixed "
            "shapes (set shapes in the catalog)"
        )
    return problems


def _blocked(claim: Claim, found: Json, exported: Json | None) -> list[str]:
    before: Mapping[str, int] = (exported or {}).get("ops", {})
    problems = []
    for op in claim.blocked_ops:
        if found["lowered"].get(op):
            problems.append(f"{op} is blocked for {claim.target.label}, but was quantized")
        elif found["ops"].get(op, 0) > before.get(op, 0):
            problems.append(f"{op} is blocked for {claim.target.label}, but was added by the build")
    return problems

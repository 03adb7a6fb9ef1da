"""Precisions, and the effective policy of a cell, resolved from catalog, target and flags.

An explicit precision wins (of the catalog's entry for the target, of the model, of the flag), else
the target decides. A quantized one is never given to an EP that cannot take a QDQ graph: it is
dropped with a notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from matrix.errors import UsageError
from matrix.globs import compiled
from matrix.model import COMMON_OPSET, Model, Overrides, Policy, Target
from matrix.nearest import hint, quote

PRECISIONS = ("fp32", "fp16", "w8a16", "w8a8", "w8", "w4", "w4a16")
CALIBRATED = ("w8a16", "w8a8")
"""With quantized activations, whose ranges come from samples."""
FOUR_BITS = ("w4", "w4a16")
"""4-bit weights; float32 arithmetic, or everything else in fp16."""
HALVES = ("fp16", "w4a16")
"""That compute in fp16."""
PLAIN_FORM = "DequantizeLinear"
FORMS = (PLAIN_FORM, "MatMulNBits")
"""How 4-bit weights are written: the operator that reads them."""
FOUR_BIT_OPSET = 21
"""The first whose `DequantizeLinear` takes 4-bit integers and blocks."""
AUTO = "auto"
_LANGUAGE = ("text-generation", "text2text-generation", "summarization", "translation")
"""Beginnings of the tasks of language models."""
ALIASES = {"int8": "w8", "int4": "w4", "w4a32": "w4", "float32": "fp32", "float16": "fp16"}
NAMES = (AUTO, *PRECISIONS, *ALIASES)


def canonical(name: str) -> str | None:
    """The canonical name of a precision; None if there is no such precision."""
    folded = name.strip().casefold()
    folded = ALIASES.get(folded, folded)
    return folded if folded == AUTO or folded in PRECISIONS else None


def precision_named(name: str) -> str:
    """The canonical name of a precision. Raises `UsageError`."""
    precision = canonical(name)
    if precision is None:
        raise UsageError(f"unknown precision {quote(name)}", hint=hint(name, NAMES))
    return precision


def quantized(precision: str) -> bool:
    """Whether a model of that precision holds integer weights."""
    return precision.startswith("w")


def default_of(target: Target) -> str:
    """The precision of a target when none is asked for."""
    return target.auto if target.precision == AUTO else target.precision


def for_task(target: Target, task: str) -> Target:
    """The target as it is for a task: it may have a default of its own for language models."""
    if target.language and task.startswith(_LANGUAGE):
        return replace(target, precision=target.language)
    return target


def takes_qdq(target: Target) -> bool:
    """Whether a quantized graph may be given to the EP of this target."""
    return target.qdq and not target.internal_quantization


def takes(target: Target, precision: str) -> bool:
    """Whether a model of that precision may be given to the EP of this target."""
    bits = {"w8a16": 16, "w8a8": 8}.get(precision)
    return not quantized(precision) or (
        takes_qdq(target) and (bits is None or bits in target.activations)
    )


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line sets for every cell; a value in the catalog wins."""

    precision: tuple[str, ...] = ()
    opset: int | None = None


def overrides_of(model: Model, target: Target) -> Overrides:
    """The overrides of a model for one target, merged over those for all targets."""
    own = next(
        (
            found
            for pattern, found in model.per_target.items()
            if pattern == target.label or compiled(pattern).match(target.label)
        ),
        None,
    )
    base = model.overrides
    if own is None:
        return base
    values = {one.name: getattr(own, one.name) for one in fields(own)}
    given = {name: value for name, value in values.items() if value is not None}
    if own.shapes is not None:
        given["shapes"] = {**(base.shapes or {}), **own.shapes}
    if own.build is not None:
        given["build"] = {**(base.build or {}), **own.build}
    given["verify"] = _rules(base.verify, own.verify)
    return replace(base, **given)


def _rules(
    base: Mapping[str, Any] | None, own: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """A target's rules merged over its model's."""
    if base is None or own is None:
        return base if own is None else own
    both = {**base, **own}
    for name in ("parity", "waive"):
        if name in both:
            both[name] = {**base.get(name, {}), **own.get(name, {})}
    return both


def policies(overrides: Overrides, target: Target, flags: Flags) -> tuple[Policy, ...]:
    """One policy for every distinct precision of a model on a target, in the order asked.

    If a dropped precision results in the same as another one, the one with the notice is kept.
    """
    found: dict[str, Policy] = {}
    for asked in overrides.precision or flags.precision or (None,):
        policy = _policy(asked, target, flags, overrides)
        kept = found.get(policy.precision)
        if kept is None or (policy.notices and not kept.notices):
            found[policy.precision] = policy
    return tuple(found.values())


def opset_of(overrides: Overrides, target: Target, flags: Flags, precision: str = "") -> int:
    """The explicit opset, valid or not, or the nearest to the common one that the target takes.

    Where a precision needs a newer one, that takes the place of the common one.
    """
    explicit = flags.opset if overrides.opset is None else overrides.opset
    low, high = target.opset
    wanted = max(COMMON_OPSET, least_opset(precision, target.weight_form))
    return min(max(wanted, low), high) if explicit is None else explicit


def least_opset(precision: str, form: str | None) -> int:
    """The oldest opset in which a precision can be written; 0: any."""
    return FOUR_BIT_OPSET if precision in FOUR_BITS and form == PLAIN_FORM else 0


def _policy(asked: str | None, target: Target, flags: Flags, overrides: Overrides) -> Policy:
    default = default_of(target)
    notice = ""
    precision = default if asked in {None, AUTO} else str(asked)
    if not takes(target, precision):
        # Handing it over would kill the process or fail the session.
        notice, precision = _dropped(precision, target, default), default
    return Policy(
        precision=precision,
        default=precision == default,
        asked=asked,
        opset=opset_of(overrides, target, flags, precision),
        optimization=target.optimization,
        static_shapes=target.static_shapes,
        shapes=overrides.shapes or {},
        quantizer=_quantizer(precision, target),
        blocked_passes=target.blocked_passes,
        blocked_ops=target.blocked_ops,
        notices=(notice,) if notice else (),
        build=overrides.build or {},
        **_limits(precision, target),
        parity=_threshold(overrides, precision) if quantized(precision) else {},
    )


def _quantizer(precision: str, target: Target) -> str | None:
    if precision in FOUR_BITS:
        return target.weight_form
    return target.quantizer if quantized(precision) else None


def _limits(precision: str, target: Target) -> dict[str, Any]:
    """What of a target's row matters to a precision."""
    if precision in FOUR_BITS:
        return {"accuracy_level": target.accuracy_level}
    if precision in CALIBRATED:
        return {"rewrites": target.rewrites, "channels": target.channels}
    return {}


def _threshold(overrides: Overrides, precision: str) -> dict[str, float]:
    """What the catalog asks of parity in place of the default."""
    given = (overrides.verify or {}).get("parity", {}).get(precision, {})
    names = ("snr", "agreement", "max_abs")
    return {name: given[name] for name in names if given.get(name) is not None}


def _dropped(asked: str, target: Target, default: str) -> str:
    reason = f"cannot run quantized activations of that kind on the {target.device}"
    if target.internal_quantization:
        reason = "quantizes by itself"
    elif not target.qdq:
        reason = f"cannot run a quantized graph on the {target.device}"
    return f"{asked} is dropped on {target.label}: {target.provider} {reason}; {default} is built"

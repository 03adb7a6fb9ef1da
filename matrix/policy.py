"""The effective policy of a cell, resolved from catalog, target and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from matrix.globs import compiled
from matrix.model import COMMON_OPSET, Model, Overrides, Policy, Target
from matrix.precision import Choice, choices, quantized


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
    """One policy for every distinct precision of a model on a target."""
    asked = overrides.precision or flags.precision or None
    opset = opset_of(overrides, target, flags)
    return tuple(_policy(choice, target, opset, overrides) for choice in choices(asked, target))


def opset_of(overrides: Overrides, target: Target, flags: Flags) -> int:
    """The explicit opset, valid or not, or the nearest to the common one that the target takes."""
    explicit = flags.opset if overrides.opset is None else overrides.opset
    low, high = target.opset
    return min(max(COMMON_OPSET, low), high) if explicit is None else explicit


def _policy(choice: Choice, target: Target, opset: int, overrides: Overrides) -> Policy:
    return Policy(
        precision=choice.precision,
        default=choice.default,
        asked=choice.asked,
        opset=opset,
        optimization=target.optimization,
        static_shapes=target.static_shapes,
        shapes=overrides.shapes or {},
        quantizer=target.quantizer if quantized(choice.precision) else None,
        blocked_passes=target.blocked_passes,
        blocked_ops=target.blocked_ops,
        notices=(choice.notice,) if choice.notice else (),
        build=overrides.build or {},
    )

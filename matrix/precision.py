"""Names of precisions, and which of them a target takes."""

from __future__ import annotations

from matrix.model import Target

PRECISIONS = ("fp32", "fp16", "w8a16", "w8a8", "w8")
AUTO = "auto"
ALIASES = {"int8": "w8", "float32": "fp32", "float16": "fp16"}
NAMES = (AUTO, *PRECISIONS, *ALIASES)


def canonical(name: str) -> str | None:
    """The canonical name of a precision; None if there is no such precision."""
    folded = name.strip().casefold()
    folded = ALIASES.get(folded, folded)
    return folded if folded == AUTO or folded in PRECISIONS else None


def quantized(precision: str) -> bool:
    """Whether a model of that precision holds integer weights."""
    return precision.startswith("w")


def default_of(target: Target) -> str:
    """The precision of a target when none is asked for."""
    return target.auto if target.precision == AUTO else target.precision


def takes_qdq(target: Target) -> bool:
    """Whether a quantized graph may be given to the EP of this target."""
    return target.qdq and not target.internal_quantization

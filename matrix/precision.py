"""Names of precisions, and the policy that decides which one a cell gets.

Explicit wins (the target's entry in the catalog, the model's, then the flag), else the target's
own default. A quantized precision is never given to an EP that cannot take a QDQ graph; it is
dropped with a notice, because handing it over would kill the process or fail the session.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrix.model import Target

PRECISIONS = ("fp32", "fp16", "w8a16", "w8a8", "w8")
AUTO = "auto"
ALIASES = {"int8": "w8", "float32": "fp32", "float16": "fp16"}
NAMES = (AUTO, *PRECISIONS, *ALIASES)


@dataclass(frozen=True, slots=True)
class Choice:
    """The precision of a cell and how it was chosen."""

    precision: str
    default: bool
    asked: str | None
    notice: str = ""


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


def choose(asked: str | None, target: Target) -> Choice:
    """The effective precision of one asked (canonical) precision on a target."""
    default = default_of(target)
    if asked is None or asked == AUTO:
        return Choice(default, default=True, asked=asked)
    if quantized(asked) and not takes_qdq(target):
        return Choice(default, default=True, asked=asked, notice=_dropped(asked, target, default))
    return Choice(asked, default=asked == default, asked=asked)


def _dropped(asked: str, target: Target, default: str) -> str:
    reason = (
        "quantizes by itself"
        if target.internal_quantization
        else f"cannot run a quantized graph on the {target.device}"
    )
    return f"{asked} is dropped on {target.label}: {target.provider} {reason}; {default} is built"


def choices(asked: tuple[str, ...] | None, target: Target) -> tuple[Choice, ...]:
    """One choice per distinct precision that results, in the order asked.

    If a dropped precision results in the same as another one, the one with the notice is kept.
    """
    found: dict[str, Choice] = {}
    for choice in (choose(item, target) for item in (asked or (None,))):
        kept = found.get(choice.precision)
        if kept is None or (choice.notice and not kept.notice):
            found[choice.precision] = choice
    return tuple(found.values())

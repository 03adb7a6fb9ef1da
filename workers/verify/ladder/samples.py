"""The rung `samples`: without samples that exercise the model, parity would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matrix.policy import CALIBRATED
from workers.build.claim import Claim
from workers.verify.ladder.observed import Json, Judgement, Observed, not_run

STEP = 'give the entry inputs as its users have them: dataset = { path = "..." }'
_MASK, _WORDS = "attention_mask", "input_ids"
_COVERED = 0.5
"""The share of the range that calibration has seen which judged values must span."""


def judge(claim: Claim, observed: Observed) -> Judgement:
    """The reference's outputs vary between samples, and inputs take the values they may have."""
    if why := observed.stopped or observed.no_reference or observed.no_samples:
        return not_run(why)
    problems: list[str] = []
    for component, found in observed.exercised.items():
        where = f"{component}: " if component else ""
        problems += [where + text for text in _still(found["outputs"], claim.limit.floor)]
        problems += [where + text for text in _one_class(found["outputs"], observed.samples)]
        seen = observed.calibrated.get(component, {})
        problems += [where + text for text in _narrow(found["inputs"], seen)]
        if claim.precision in CALIBRATED:
            problems += [where + text for text in _unpadded(found["inputs"])]
    if problems:
        problems.append(STEP)
    evidence: dict[str, Any] = {
        "samples": [dict(one) for one in observed.sampled],
        "judged": observed.samples,
        "trained": claim.trained,
        "needs_real": claim.needs_real,
        "outputs": {name: one["outputs"] for name, one in observed.exercised.items()},
    }
    if claim.synthetic:
        evidence["reason"] = claim.synthetic
    return not problems, problems or list(_told(claim, observed)), evidence


def _still(outputs: Json, floor: float) -> Iterator[str]:
    """Outputs that are compared by value, because they are the same for all samples."""
    rows = [one for one in outputs.values() if "varies" in one]
    if rows and all(one.get("fixed") for one in rows):
        most = max(float(one["varies"]) for one in rows)
        yield (
            f"no output varies between the samples by more than {most:.2g} of its size "
            f"(at least {floor:g}): any graph with these values would pass"
        )


def _one_class(outputs: Json, samples: int) -> Iterator[str]:
    for name, one in outputs.items():
        count = one.get("decisions", 0) + one.get("ties", 0)
        if samples > 1 and count > 1 and one.get("classes") == 1:
            yield f"output {name} is one class in all {count} decisions of the samples"


def _narrow(inputs: Json, seen: Json) -> Iterator[str]:
    """Inputs whose judged values cover too little of what calibration has seen, and masks that hide
    nothing."""
    for name, one in inputs.items():
        given = seen.get(name, {})
        low, high = given.get("range", (0.0, 0.0))
        width = one["high"] - one["low"]
        if str(given.get("dtype", "")).startswith("float"):
            if high > low and width < _COVERED * (high - low):
                yield (
                    f"input {name} takes {one['low']:.3g} to {one['high']:.3g} in the judged "
                    f"samples, {low:.3g} to {high:.3g} in calibration"
                )
        elif "mask" in name and high > low and not width:
            yield f"{name} hides nothing in the judged samples, but something in calibration"


def _unpadded(inputs: Json) -> Iterator[str]:
    """Texts that are nowhere padded: calibration takes the mask for a constant, and then hides
    nothing that a user pads."""
    mask = inputs.get(_MASK)
    if mask is not None and _WORDS in inputs and mask["low"] == mask["high"] == 1:
        yield f"{_MASK} hides nothing in any sample: no text is shorter than the input"


def _told(claim: Claim, observed: Observed) -> Iterator[str]:
    kinds = sorted({str(one.get("kind", "")) for one in observed.sampled} - {""})
    origins = sorted({str(one.get("origin", "")) for one in observed.sampled} - {""})
    what = f"{observed.samples} samples"
    if kinds:
        what += f" ({', '.join(kinds)}: {', '.join(origins)})"
    yield what
    if claim.synthetic:
        yield f"the catalog accepts synthetic ones: {claim.synthetic}"

"""The rung `parity`: the outputs are as close to the export's as the precision allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from matrix.verification import EP, Threshold
from workers.verify.ladder import generated
from workers.verify.ladder.claim import Claim
from workers.verify.ladder.observed import (
    Json,
    Judgement,
    Observed,
    RuntimeRun,
    not_run,
)

_MOST_DIGITS = 17


def judge(claim: Claim, observed: Observed) -> Judgement:
    """Every output on every runtime, component by component and end to end."""
    if why := observed.stopped or observed.no_reference:
        return not_run(why)
    limit = claim.rules.threshold(claim.precision)
    evidence: dict[str, Any] = {run.runtime.name: _rows(run) for run in observed.runs}
    problems, unseen = [], []
    for runtime, rows in evidence.items():
        for where, one in rows.items():
            if "absent" in one:
                unseen.append(f"{where} on {runtime} cannot be compared: {one['absent']}")
            elif text := too_far(one, limit):
                problems.append(f"{where} on {runtime}: {text}")
    problems += [text for run in observed.runs for text in generated.problems(run, claim.precision)]
    if problems:
        problems.append(
            f"{claim.precision} must reach cosine {limit.cosine}; try another precision, better "
            "calibration data, or a threshold with its reason (verify.parity) in the catalog"
        )
    evidence["limits"] = _limits(limit)
    evidence |= generated.evidence(observed.runs)
    passed, notes, evidence = observed.judged(problems, evidence, unseen)
    if passed:
        said = filter(None, map(generated.summary, observed.runs[:1]))
        notes = [*summary(evidence, limit), *said, *notes, *_elsewhere(claim, observed)]
    return passed, notes, evidence


def _rows(run: RuntimeRun) -> dict[str, Json]:
    rows: dict[str, Json] = {}
    for model, found in run.models.items():
        rows |= {f"{model} {name}": one for name, one in dict(found.get("parity", {})).items()}
        ends = dict(found.get("end_to_end", {}))
        rows |= {f"{model} end to end {name}".rstrip(): one for name, one in ends.items()}
    rows |= {f"end to end {name}": one for name, one in run.joined.items()}
    return rows | generated.rows(run)


def too_far(one: Json, limit: Threshold, reference: str = "the export") -> str:
    """Why an output is not as close to the reference as the limit asks; empty: it is."""
    if not one or "problem" in one:
        return str(one.get("problem", ""))
    if "agree" in one:
        if one["agree"] >= limit.cosine:
            return ""
        share, wanted = apart(100 * one["agree"], 100 * limit.cosine)
        return f"{share}% of the values agree (limit {wanted}%)"
    return _vector_too_far(one, limit, reference)


def _vector_too_far(one: Json, limit: Threshold, reference: str) -> str:
    if one["cosine"] < limit.cosine:
        return f"cosine {apart(one['cosine'], limit.cosine, digits=5)[0]} with {reference}"
    if one["error"] > limit.error:
        error, most = apart(one["error"], limit.error)
        return f"relative error {error} against {reference} (limit {most}); is a scale wrong?"
    if limit.max_abs is not None and one["max_abs"] > limit.max_abs:
        off, most = apart(one["max_abs"], limit.max_abs)
        return f"a value is off by {off} (limit {most})"
    return ""


def apart(value: float, limit: float, digits: int = 4) -> tuple[str, str]:
    """Two numbers with as many digits as are needed to distinguish them."""
    for number in range(digits, _MOST_DIGITS):
        texts = f"{value:.{number}g}", f"{limit:.{number}g}"
        if texts[0] != texts[1]:
            return texts
    return repr(value), repr(limit)


def _limits(limit: Threshold) -> dict[str, Any]:
    limits: dict[str, Any] = {"cosine": limit.cosine, "error": round(limit.error, 6)}
    if limit.max_abs is not None:
        limits["max_abs"] = limit.max_abs
    return limits | ({"reason": limit.reason} if limit.reason else {})


def summary(evidence: Json, limit: Threshold) -> Iterator[str]:
    cosines = [one["cosine"] for rows in evidence.values() for one in _vectors(rows)]
    if cosines:
        least = math.floor(min(cosines) * 1e5) / 1e5  # rounding up would claim too much
        yield f"cosine {least:.5f} or better with the export"
    if limit.reason:
        yield f"the catalog asks {limit.cosine}: {limit.reason}"


def _vectors(rows: Json) -> list[Json]:
    return [one for one in rows.values() if isinstance(one, dict) and "cosine" in one]


def _elsewhere(claim: Claim, observed: Observed) -> Iterator[str]:
    """The waiver `ep` belongs to no rung: it appears where a run on that provider would."""
    reason = claim.rules.waive.get(EP)
    if reason and observed.missing:
        one = observed.missing[0]
        yield f"not run on {one.provider} {one.device}: because {one.why} (waived: {reason})"

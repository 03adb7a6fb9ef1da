"""The rungs: each judges what was seen by itself and says what a user can do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workers.ladder import policy
from workers.ladder.claim import Claim
from workers.ladder.seen import Ran, Seen
from workers.stages import Rung

Json = Mapping[str, Any]
Verdict = tuple[bool | None, list[str], dict[str, Any]]
"""Passed (None: could not be run), what is wrong or noteworthy, evidence."""
RAN_WRONG = ("open", "run", "crash")


def climb(name: str, claim: Claim, seen: Seen) -> Rung:
    """One rung of one package."""
    passed, told, evidence = RUNGS[name](claim, seen)
    waived = claim.rules.waive.get(name, "") if passed is False else ""
    count = len(seen.models)
    detail = "; ".join(told) or f"{count} model file{'s' * (count != 1)}"
    if waived:
        detail = f"{detail} (waived: {waived})"
    return Rung(name, passed, detail, evidence, waived)


def integrity(claim: Claim, seen: Seen) -> Verdict:
    """Every file is there, every model is valid ONNX that the target can read, every weight is
    a number."""
    problems = list(seen.files)
    low, high = claim.target.opset
    for model, found in seen.models.items():
        problems += [f"{model}: {text}" for text in found["problems"]]
        if found["problems"]:
            continue
        opset = found["opsets"].get("ai.onnx", 0)
        if not low <= opset <= high:
            problems.append(
                f"{model}: opset {opset} is outside {low}..{high}, which {claim.target.label} "
                "takes; set opset in the catalog"
            )
        if found["ir"] > claim.newest_ir:
            problems.append(
                f"{model}: IR version {found['ir']} is newer than {claim.newest_ir}, the newest "
                f"that {claim.target.label} reads"
            )
        problems += [
            f"{model}: weight {name} holds NaN; is the source damaged, or did fp16 overflow?"
            for name in found["nan"]
        ]
        problems += [
            f"{model}: weight {name} holds an infinity; did fp16 overflow?"
            for name in found["infinite"]
        ]
    if not seen.models:
        problems.append("the package has no .onnx file")
    kept = ("ir", "opsets", "external")
    evidence = {
        model: {key: found[key] for key in kept if key in found}
        for model, found in seen.models.items()
    }
    return not problems, problems, {"models": evidence}


def loads(_claim: Claim, seen: Seen) -> Verdict:
    """A session opens and runs on every runtime there is for it."""
    problems = [text for ran in seen.runs for text in ran.problem(*RAN_WRONG)]
    for ran in seen.runs:
        for model, found in ran.models.items():
            problems += [
                f"{model} on {ran.runtime.name}: output {name} holds NaN or infinity"
                for name, one in dict(found.get("seen", {})).items()
                if not one["finite"] and _should_be_finite(seen, model, name)
            ]
    evidence: dict[str, Any] = {
        ran.runtime.name: {
            model: {"sets": found.get("sets", 0), "nodes": dict(found.get("nodes", {}))}
            for model, found in ran.models.items()
        }
        for ran in seen.runs
    }
    return _over(seen, problems, evidence)


def _should_be_finite(seen: Seen, model: str, output: str) -> bool:
    found = dict(seen.reference.get(model, {}).get("seen", {}))
    return bool(found.get(output, {}).get("finite", True))


def shapes(claim: Claim, seen: Seen) -> Verdict:
    """Inputs and outputs are the export's: declared, and as they come out of every run."""
    if seen.no_reference:
        return None, [seen.no_reference], {}
    problems = []
    for ran in seen.runs:
        for model, found in ran.models.items():
            want = seen.reference[model]
            if ran.runtime.kind == seen.runs[0].runtime.kind and "inputs" in found:
                for side in ("inputs", "outputs"):
                    problems += [
                        f"{model} on {ran.runtime.name}: {text}"
                        for text in _ports(side[:-1], found[side], want[side], claim)
                    ]
            problems += [
                f"{model} on {ran.runtime.name}: {text}"
                for text in _came_out(dict(found.get("seen", {})), dict(want.get("seen", {})))
            ]
    evidence = {
        model: {side: found.get(side) for side in ("inputs", "outputs")}
        for model, found in (seen.runs[0].models if seen.runs else {}).items()
    }
    return _over(seen, list(dict.fromkeys(problems)), {"models": evidence})


def _ports(side: str, found: list[Any], wanted: list[Any], claim: Claim) -> list[str]:
    names, want_names = [one[0] for one in found], [one[0] for one in wanted]
    if names != want_names:
        return [f"the {side}s are {', '.join(names)}; the export's are {', '.join(want_names)}"]
    problems = []
    for (name, dtype, dims), (_name, want_dtype, want_dims) in zip(found, wanted, strict=True):
        if dtype != want_dtype:
            problems.append(f"{side} {name} is {dtype}, in the export {want_dtype}")
        if not _fits(dims, want_dims, side == "output" or claim.static_shapes):
            problems.append(f"{side} {name} has the shape {dims}, in the export {want_dims}")
    return problems


def _fits(dims: list[Any], wanted: list[Any], may_fix: bool) -> bool:
    if len(dims) != len(wanted):
        return False
    for dim, want in zip(dims, wanted, strict=True):
        if isinstance(want, int) and isinstance(dim, int) and dim != want:
            return False
        if isinstance(dim, int) and not isinstance(want, int) and not may_fix:
            return False
    return True


def _came_out(found: Json, wanted: Json) -> list[str]:
    problems = []
    for name, want in wanted.items() if found else ():
        one = found.get(name)
        if one is None:
            problems.append(f"output {name} of the export is missing")
        elif (one["dtype"], one["shape"]) != (want["dtype"], want["shape"]):
            problems.append(
                f"output {name} came out as {one['dtype']} {one['shape']}, "
                f"of the export as {want['dtype']} {want['shape']}"
            )
    return problems


def parity(claim: Claim, seen: Seen) -> Verdict:
    """The outputs are the export's, as near as the precision lets them be, on every runtime."""
    if seen.no_reference:
        return None, [seen.no_reference], {}
    limit = claim.rules.threshold(claim.precision)
    problems: list[str] = []
    evidence: dict[str, Any] = {}
    for ran in seen.runs:
        rows: dict[str, Json] = {}
        for model, found in ran.models.items():
            rows |= {f"{model} {name}": one for name, one in dict(found.get("parity", {})).items()}
            ends = dict(found.get("end_to_end", {}))
            rows |= {f"{model} end to end {name}": one for name, one in ends.items()}
        rows |= {f"end to end {name}": one for name, one in ran.joined.items()}
        for where, one in rows.items():
            if text := _too_far(one, limit.cosine, limit.error, limit.max_abs):
                problems.append(f"{where} on {ran.runtime.name}: {text}")
        evidence[ran.runtime.name] = rows
    limits: dict[str, Any] = {"cosine": limit.cosine, "error": round(limit.error, 6)}
    limits |= {"max_abs": limit.max_abs} if limit.max_abs is not None else {}
    if limit.reason:
        limits["reason"] = limit.reason
    if problems:
        problems.append(
            f"{claim.precision} must reach cosine {limit.cosine:g}; try another precision, better "
            "calibration data, or a threshold with its reason (verify.parity) in the catalog"
        )
    passed, told, evidence = _over(seen, problems, {**evidence, "limits": limits})
    cosines = [one["cosine"] for rows in evidence.values() for one in _rows(rows)]
    if passed and cosines:
        told = [f"cosine {min(cosines):.5f} or better with the export"]
    return passed, told, evidence


def _rows(rows: Json) -> list[Json]:
    return [one for one in rows.values() if isinstance(one, dict) and "cosine" in one]


def _too_far(one: Json, cosine: float, error: float, max_abs: float | None) -> str:
    if not one or "problem" in one:
        return str(one.get("problem", ""))
    if "agree" in one:
        return "" if one["agree"] >= cosine else f"{one['agree']:.2%} of the values agree"
    text = ""
    if one["cosine"] < cosine:
        text = f"cosine {one['cosine']:.5f} with the export"
    elif one["error"] > error:
        text = f"relative error {one['error']:.3g} against the export (limit {error:.3g}); a scale?"
    elif max_abs is not None and one["max_abs"] > max_abs:
        text = f"a value is off by {one['max_abs']:.3g} (limit {max_abs:g})"
    return text


def task(claim: Claim, seen: Seen) -> Verdict:
    """The metric on the catalog's dataset is the source model's, or nearly."""
    wanted = claim.rules.task
    if wanted is None:
        return None, ["the catalog gives no dataset and metric"], {}
    if seen.no_reference:
        return None, [seen.no_reference], {}
    problems, evidence = [], {}
    for model, found in seen.runs[0].models.items() if seen.runs else ():
        ours, theirs = found.get("task"), seen.reference[model].get("task")
        if not ours or not theirs:
            continue
        score, base = _scores(wanted.metric, ours, theirs)
        if score is None or base is None:
            problems.append(f"{model}: accuracy needs an array `label` in the dataset")
            continue
        evidence[model] = {wanted.metric: score, "source": base, "samples": ours["samples"]}
        if score < base - wanted.within:
            problems.append(
                f"{model}: {wanted.metric} is {score:.4f}, of the source model {base:.4f} "
                f"(within {wanted.within:g} is asked)"
            )
    return _over(seen, problems, {"models": evidence})


def _scores(metric: str, ours: Json, theirs: Json) -> tuple[float | None, float | None]:
    if metric == "accuracy":
        return ours["accuracy"], theirs["accuracy"]
    pairs = list(zip(ours["answers"], theirs["answers"], strict=True))
    return sum(a == b for a, b in pairs) / max(len(pairs), 1), 1.0


def _over(seen: Seen, problems: list[str], evidence: dict[str, Any]) -> Verdict:
    """What ran at all decides; a rung that nothing could run is not passed and not failed."""
    broken = [ran for ran in seen.runs if ran.problem(*RAN_WRONG)]
    if not problems and broken and len(broken) == len(seen.runs):
        return None, ["the model did not run"], evidence
    return not problems, problems, evidence


def ran_well(ran: Ran) -> bool:
    """Whether every model of the package ran there."""
    return bool(ran.models) and not ran.problem(*RAN_WRONG)


RUNGS: dict[str, Callable[[Claim, Seen], Verdict]] = {
    "integrity": integrity,
    "policy": policy.judge,
    "loads": loads,
    "shapes": shapes,
    "parity": parity,
    "task": task,
}

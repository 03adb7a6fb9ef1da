"""The rungs: each is judged by itself and says what a user can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrix.verification import Rung
from workers.build.claim import Claim
from workers.runtimes.runtime import AGAIN, PREFER
from workers.verify.ladder import parity, policy, samples
from workers.verify.ladder.observed import (
    MISFIT,
    RAN_WRONG,
    Json,
    Judgement,
    Observed,
    RuntimeRun,
    not_run,
)

OPTIONAL = "task"
DAMAGED = "integrity failed"
_NOT_FINITE = {
    "nan": "NaN; is the source damaged, or did fp16 overflow?",
    "infinite": "an infinity; did fp16 overflow?",
}


def climb(name: str, claim: Claim, observed: Observed) -> Rung:
    """One rung of one package."""
    passed, notes, evidence = RUNGS[name](claim, observed)
    asked = passed is False or (passed is None and name != OPTIONAL)
    waived = claim.rules.waive.get(name, "") if asked else ""
    count = len(observed.models)
    detail = "; ".join(notes) or f"{count} model file{'s' * (count != 1)}"
    if waived:
        detail = f"{detail} (waived: {waived})"
    return Rung(name, passed, detail, evidence, waived)


def integrity(claim: Claim, observed: Observed) -> Judgement:
    """Every file exists, every model is valid ONNX that the target reads, weights are finite."""
    problems = [*_damage(observed), *_out_of_range(claim, observed)]
    kept = ("ir", "opsets", "external")
    evidence = {
        model: {key: found[key] for key in kept if key in found}
        for model, found in observed.models.items()
    }
    return not problems, problems, {"models": evidence}


def damaged(claim: Claim, observed: Observed) -> str:
    """Why a package is not run: its files are damaged, or its weights are not finite.

    A model whose opset is outside the target's range can still be run.
    """
    return DAMAGED if _damage(observed) and "integrity" not in claim.rules.waive else ""


def _damage(observed: Observed) -> list[str]:
    problems = list(observed.files)
    problems += [
        f"{model}: {text}" for model, one in observed.models.items() for text in one["problems"]
    ]
    if not observed.models:
        problems.append("the package has no .onnx file")
    if problems:
        problems.append(
            "fetch it or build it again; if that does not help, try another opset or engine"
        )
    for model, found in observed.models.items():
        for key, what in _NOT_FINITE.items():
            problems += [f"{model}: weight {name} holds {what}" for name in found.get(key, ())]
    return problems


def _out_of_range(claim: Claim, observed: Observed) -> list[str]:
    problems: list[str] = []
    if claim.profile is not None:
        return problems  # the runtime that wrote it reads it; `loads` opens it there
    low, high = claim.target.opset
    for model, found in observed.models.items():
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
                f"that {claim.target.label} reads; set a lower opset in the catalog"
            )
    return problems


def loads(_claim: Claim, observed: Observed) -> Judgement:
    """A session opens and runs on every available runtime."""
    if observed.stopped:
        return not_run(observed.stopped)
    problems = [text for run in observed.runs for text in run.problems(*RAN_WRONG)]
    if problems:
        problems.append(
            "try another opset or precision in the catalog; `modelmill doctor` shows the runtime's "
            "version"
        )
    if observed.no_reference:
        problems += [text for run in observed.runs for text in _no_numbers(run)]
    evidence: dict[str, Any] = {
        run.runtime.name: {
            model: {"sets": found.get("sets", 0), "nodes": dict(found.get("nodes", {}))}
            for model, found in run.models.items()
        }
        for run in observed.runs
    }
    misfits = [text for run in observed.runs for text in run.problems(MISFIT)]
    if misfits and not problems:
        return not_run(f"no input values fit: {misfits[0]}", evidence)
    notes = [
        f"{model} on {run.runtime.name}: it works, but another compiler would do better: {AGAIN}"
        for run in observed.runs
        for model, found in run.models.items()
        if found.get("compatibility") == PREFER
    ]
    return not problems, problems or notes, evidence


def _no_numbers(run: RuntimeRun) -> list[str]:
    """Only without an export to compare with: otherwise parity detects them."""
    return [
        f"{model} on {run.runtime.name}: output {name} holds NaN or infinity"
        for model, found in run.models.items()
        for name, one in dict(found.get("seen", {})).items()
        if not one["finite"]
    ]


def shapes(claim: Claim, observed: Observed) -> Judgement:
    """Inputs and outputs equal the export's: as declared, and as computed in every run."""
    if why := observed.stopped or observed.no_reference:
        return not_run(why)
    problems = []
    for run in observed.runs:
        for model, found in run.models.items():
            want, wrong = observed.reference[model], list[str]()
            if run.runtime.kind == observed.runs[0].runtime.kind and "inputs" in found:
                for side in ("inputs", "outputs"):
                    wrong += _ports(side[:-1], found[side], want[side], claim)
            wrong += _came_out(dict(found.get("seen", {})), dict(want.get("seen", {})))
            problems += [f"{model} on {run.runtime.name}: {text}" for text in wrong]
    evidence = {
        model: {side: found.get(side) for side in ("inputs", "outputs")}
        for model, found in (observed.runs[0].models if observed.runs else {}).items()
    }
    problems = list(dict.fromkeys(problems))
    if problems:
        problems.append(
            "the optimization or quantization changed it: try another opset or precision in the "
            "catalog, or waive shapes with a reason"
        )
    return observed.judged(problems, {"models": evidence})


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
        elif (one["dtype"], one["shapes"]) != (want["dtype"], want["shapes"]):
            ours, theirs = (" or ".join(map(str, each["shapes"])) for each in (one, want))
            problems.append(
                f"output {name} is {one['dtype']} {ours} when run, "
                f"{want['dtype']} {theirs} in the export"
            )
    return problems


RUNGS: dict[str, Callable[[Claim, Observed], Judgement]] = {
    "integrity": integrity,
    "policy": policy.judge,
    "loads": loads,
    "shapes": shapes,
    "samples": samples.judge,
    "parity": parity.judge_outputs,
    "task": parity.judge_task,
}

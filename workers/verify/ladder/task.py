"""The rung `task`: the metric on the catalog's dataset is near the source model's."""

from __future__ import annotations

from dataclasses import replace

from matrix.verification import Task
from workers.verify.ladder.claim import Claim
from workers.verify.ladder.observed import Json, Judgement, Observed, not_run

ADVICE = "try another precision, better calibration data, or a larger `within` in the catalog"


def judge(claim: Claim, observed: Observed) -> Judgement:
    """Compare metrics on ONNX Runtime's CPU, for every model that the dataset has values for."""
    wanted = claim.rules.task
    if wanted is None:
        return not_run("the catalog gives no dataset and metric")
    if why := observed.stopped or observed.no_reference:
        return not_run(why)
    problems: list[str] = []
    evidence = {}
    on_cpu = replace(observed, runs=observed.runs[:1])
    for model, found in observed.runs[0].models.items() if observed.runs else ():
        ours, theirs = found.get("task"), observed.reference[model].get("task")
        if not ours or not theirs:
            continue
        text, row = _compared(wanted, ours, theirs)
        problems += [f"{model}: {text}"] if text else []
        evidence[model] = row
    scored = any(evidence.values())
    if problems and scored:
        problems.append(ADVICE)
    passed, notes, _ = on_cpu.judged(problems, {})
    if passed and not evidence:
        return False, [f"the dataset {wanted.dataset} has values for no model of the package"], {}
    if passed:
        lowest = min(float(row[wanted.metric]) for row in evidence.values())
        notes = [f"{wanted.metric} {lowest:.4f} or better", *notes]
    return passed, notes, {"models": evidence}


def _compared(wanted: Task, ours: Json, theirs: Json) -> tuple[str, Json]:
    """What is wrong with a model's answers, and the metrics."""
    for one in (ours, theirs):
        if "problem" in one:
            return f"the dataset does not fit: {one['problem']}", {}
    score, base = _scores(wanted.metric, ours, theirs)
    if score is None or base is None:
        return "accuracy needs an array `label` in the dataset", {}
    row = {wanted.metric: score, "source": base, "samples": ours["samples"]}
    if score >= base - wanted.within:
        return "", row
    return (
        f"{wanted.metric} is {score:.4f}, of the source model {base:.4f} "
        f"(allowed difference: {wanted.within:g})"
    ), row


def _scores(metric: str, ours: Json, theirs: Json) -> tuple[float | None, float | None]:
    if metric == "accuracy":
        return ours["accuracy"], theirs["accuracy"]
    pairs = list(zip(ours["answers"], theirs["answers"], strict=True))
    return sum(a == b for a, b in pairs) / max(len(pairs), 1), 1.0

"""The rungs that compare with the export: `parity` of all outputs, and a metric (`task`).

The outputs must be as close to the export's as the precision allows; the metric on the catalog's
dataset must be near that of the source model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from matrix.verification import EP, EXPORT, TAKEN, Limit, Task
from workers.build.claim import Claim
from workers.numerics.compare import fault
from workers.session import CPU
from workers.verify.ladder.levels import took
from workers.verify.ladder.observed import Json, Judgement, Observed, RuntimeRun, not_run


def judge_outputs(claim: Claim, observed: Observed) -> Judgement:
    """Every output on every runtime, component by component and end to end."""
    if why := observed.stopped or observed.no_reference or observed.no_samples:
        return not_run(why)
    limit = claim.limit
    evidence: dict[str, Any] = {run.runtime.name: _rows(run) for run in observed.runs}
    problems, unseen = [], []
    for runtime, rows in evidence.items():
        for where, one in rows.items():
            if "absent" in one:
                unseen.append(f"{where} on {runtime} cannot be compared: {one['absent']}")
            elif text := fault(one, limit):
                problems.append(f"{where} on {runtime}: {text}")
    problems += [text for run in observed.runs for text in _wrong_tokens(run, claim)]
    if problems:
        problems.append(
            f"{claim.precision} must reach {limit.snr:g} dB; try another precision, better "
            "calibration data, or a threshold with its reason (verify.parity) in the catalog"
        )
    problems += _synthetic(claim, observed)
    evidence["limits"] = _limits(limit)
    evidence["samples"] = {
        run.runtime.name: max((one.get("sets", 0) for one in run.models.values()), default=0)
        for run in observed.runs
    }
    evidence |= _generation(observed.runs, limit)
    passed, notes, evidence = observed.judged(problems, evidence, unseen)
    if passed:
        said = [text for run in observed.runs[:1] if (text := _tokens_found(run, limit))]
        shares = filter(None, map(_share, observed.runs))
        notes = [*summary(evidence, limit), *said, *shares, *notes, *_elsewhere(claim, observed)]
    return passed, notes, evidence


def _synthetic(claim: Claim, observed: Observed) -> list[str]:
    """Why synthetic samples prove nothing of the quantized graph of a trained model."""
    kinds = {one.get("kind") for one in observed.sampled}
    if "synthetic" not in kinds or not claim.needs_real or claim.synthetic:
        return []
    text = (
        "the samples are synthetic, and say nothing of a trained model: give the entry "
        'dataset = { path = "..." }, or accept them with '
        'samples = { kind = "synthetic", reason = "..." }'
    )
    return [text]


def _share(run: RuntimeRun) -> str:
    """How much of the graph ran on the target's own provider, where another could take it too."""
    taken, every = run.taken()
    if not run.own or not every or run.runtime.provider == CPU:
        return ""
    mixed = "" if taken >= TAKEN * every else "on a mixture: "
    return f"{mixed}{run.runtime.name} {took(run.to_json())}"


def _rows(run: RuntimeRun) -> dict[str, Json]:
    rows: dict[str, Json] = {}
    for model, found in run.models.items():
        rows |= {f"{model} {name}": one for name, one in dict(found.get("parity", {})).items()}
        ends = dict(found.get("end_to_end", {}))
        rows |= {f"{model} end to end {name}".rstrip(): one for name, one in ends.items()}
    rows |= {f"end to end {name}": one for name, one in run.joined.items()}
    return rows | _logits(run)


def _limits(limit: Limit) -> dict[str, Any]:
    limits: dict[str, Any] = {"snr": limit.snr, "agreement": limit.agreement}
    if limit.max_abs is not None:
        limits["max_abs"] = limit.max_abs
    return limits | ({"reason": limit.reason} if limit.reason else {})


def summary(evidence: Json, limit: Limit) -> Iterator[str]:
    """The worst figures of all runtimes, for people."""
    rows = [one for found in evidence.values() for one in found.values() if isinstance(one, dict)]
    if ratios := [one["snr"] for one in rows if "snr" in one]:
        yield f"signal-to-noise ratio {min(ratios):g} dB or better against the export"
    decided = [one for one in rows if "decisions" in one and "agreement" in one]
    if decided:
        worst = min(decided, key=lambda one: float(one["agreement"]))
        yield f"{worst['agreement']:.1%} of {worst['decisions']} decisions agree"
    if limit.reason:
        yield f"the catalog asks {limit.snr:g} dB: {limit.reason}"


def _elsewhere(claim: Claim, observed: Observed) -> Iterator[str]:
    """The waiver `ep` belongs to no rung: it appears in place of a run on that provider."""
    reason = claim.rules.waive.get(EP)
    if reason and observed.missing:
        one = observed.missing[0]
        yield f"not run on {one.provider} {one.device}: because {one.why} (waived: {reason})"


def _logits(run: RuntimeRun) -> dict[str, Json]:
    """The distance of the logits from the export's, over all steps."""
    found = dict(run.generated.get("parity", {}))
    return {"generated logits": found["logits"]} if found else {}


def _wrong_tokens(run: RuntimeRun, claim: Claim) -> list[str]:
    """Why a run does not generate what PyTorch does; empty: it does, or it is no decoder.

    Every step was given PyTorch's token. The export, and an fp32 package on ONNX Runtime's CPU,
    must find PyTorch's next token at every step, or one that is as likely (`_tied`). A coarser
    precision may prefer a token that is nearly as likely: there the logits of all steps are
    compared with the export's, like any other output.
    """
    told: list[str] = []
    exported = run.generated.get("export", {})
    for who, one in (("the export", exported), (run.runtime.name, run.generated)):
        if "error" in one:
            told.append(f"{who} cannot generate: {one['error']}")
    told += _other("the export", exported, EXPORT)
    if claim.precision == "fp32" and run.runtime.provider == CPU and not told:
        told += _other(run.runtime.name, run.generated, claim.limit)
    return told


def _generation(runs: Sequence[RuntimeRun], limit: Limit) -> dict[str, Any]:
    """PyTorch's tokens, and how many of them every runtime finds."""
    found = {run.runtime.name: run.generated for run in runs if "tokens" in run.generated}
    if not found:
        return {}
    told = {}
    for name, one in found.items():
        told[name] = {"tokens": one["tokens"], "same": _same(one)}
        if ties := len(_tied(one, limit)):
            told[name]["ties"] = ties
    return {"generation": {"pytorch": next(iter(found.values()))["wanted"], **told}}


def _tokens_found(run: RuntimeRun, limit: Limit) -> str:
    """For people: how many tokens are PyTorch's; empty: nothing was generated."""
    one = run.generated
    if "tokens" not in one:
        return ""
    ties = len(_tied(one, limit))
    as_likely = f", {ties} as likely" if ties else ""
    return f"{_same(one)} of {len(one['wanted'])} generated tokens are PyTorch's{as_likely}"


def _same(one: Json) -> int:
    return sum(a == b for a, b in zip(one["tokens"], one["wanted"], strict=True))


def _tied(one: Json, limit: Limit) -> set[int]:
    """The places of other tokens than PyTorch's that are preferred by less than two logits may be
    wrong."""
    triples = zip(one["tokens"], one["wanted"], one.get("behind", ()), strict=False)
    return {
        place
        for place, (found, wanted, behind) in enumerate(triples)
        if found != wanted and behind <= 2 * limit.ratio
    }


def _other(who: str, one: Json, limit: Limit) -> list[str]:
    if "tokens" not in one:
        return []
    ties = _tied(one, limit)
    for place, (found, wanted) in enumerate(zip(one["tokens"], one["wanted"], strict=True)):
        if found != wanted and place not in ties:
            return [f"token {place + 1} that {who} generates is {found}, PyTorch's is {wanted}"]
    return []


_TASK_ADVICE = "try another precision, better calibration data, or a larger `within` in the catalog"


def judge_task(claim: Claim, observed: Observed) -> Judgement:
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
        problems.append(_TASK_ADVICE)
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

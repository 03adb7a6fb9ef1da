"""The loop of optimizer and analyzer for a target, with every step remembered for the next one.

`winml build` optimizes, lets the static analyzer look for fusions that the target's rule data
favours, applies those, and looks again, up to three times. The loop here makes the same calls in
the same order; what it does not do is make one twice: targets start from the same graph, mostly
arrive at the same flags, and the last look is often at a graph that has just been looked at.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.status import FailureClass
from workers.engine import StageError, StageJob, StageReport
from workers.sources.scratch import scratch
from workers.winml_engine import config as configs
from workers.winml_engine import warm
from workers.winml_engine.export import MODEL
from workers.winml_engine.failures import told
from workers.winml_engine.recall import Looked, Memory, Recall

ITERATIONS = 3
_recall = Recall(Path(tempfile.gettempdir()))


def run(job: StageJob) -> StageReport:
    """Optimize one component for the rule data of a target."""
    settings = _settings(job)
    start = job.inputs["export"] / MODEL
    with scratch(job.out), told(FailureClass.OPTIMIZE, "the optimization failed"):
        from winml.modelkit.onnx import copy_onnx_model

        memory = _recall.of(start)
        model = memory.first(start, None if settings["skip"] else settings["flags"])
        looks: list[Looked] = []
        if settings["auto"] and not settings["skip"]:
            model, looks = _loop(job, memory, model)
        copy_onnx_model(model, job.out / MODEL)
        warm.settle()
    _check(looks, job)
    return StageReport(_facts(settings, looks), {"remembered": memory.hits})


def _loop(job: StageJob, memory: Memory, model: Path) -> tuple[Path, list[Looked]]:
    rules = job.params["rules"]
    looks = []
    for number in range(1, ITERATIONS + 1):
        job.progress(f"analyzing, round {number}")
        looked = memory.look(model, rules)
        looks.append(looked)
        if not looked.flags:
            break
        model = memory.apply(model, looked.flags)
    looks.append(memory.look(model, rules))
    return model, looks


def _settings(job: StageJob) -> dict[str, Any]:
    """What the configuration, or a recipe, says of this stage."""
    found: Mapping[str, Any] = configs.read(job.inputs["config"])
    if "recipe" in job.params:
        found = job.params["recipe"].get(job.component, {})
    return {
        "flags": dict(found.get("optim") or {}),
        "auto": bool(found.get("auto", True)),
        "skip": bool(found.get("skip_optimize", False)),
    }


def _check(looks: list[Looked], job: StageJob) -> None:
    unsupported = looks[-1].unsupported if looks else ()
    if unsupported:
        raise StageError(
            f"the rule data {job.params['rules']} says that the target cannot run "
            f"{', '.join(unsupported)}",
            failure=FailureClass.UNSUPPORTED,
            hint="winml analyze tells which nodes; skip this cell in the catalog",
        )


def _facts(settings: Mapping[str, Any], looks: list[Looked]) -> dict[str, Any]:
    discovered: dict[str, Any] = {}
    for looked in looks[:-1]:
        discovered.update(looked.flags)
    last = looks[-1] if looks else None
    return {
        "optim": {**settings["flags"], **discovered},
        "autoconf": discovered,
        "analysis": None if last is None else last.as_json(),
        "iterations": max(len(looks) - 1, 0),
        "converged": last is None or not last.flags,
    }

"""The loop of optimizer and analyzer for a target, with every step cached for the next target.

`winml build` optimizes, lets the static analyzer look for fusions that the target's rule data
favours, applies those, and analyzes again, up to three times. This loop makes the same calls in
the same order, but none of them twice: targets start from the same graph, mostly arrive at the
same flags, and the last analysis is often of a graph that has just been analyzed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from matrix.status import FailureClass
from workers.engine import StageJob, StageReport
from workers.sources.errors import unsupported
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs
from workers.winml_engine import patches
from workers.winml_engine.cache import Analysis, Cache, ExportCache
from workers.winml_engine.config import MODEL

ITERATIONS = 3
_cache = Cache(Path(tempfile.gettempdir()))


def run(job: StageJob) -> StageReport:
    """Optimize one component for the rule data of a target."""
    settings = _settings(job)
    start = job.inputs["export"] / MODEL
    job.progress("optimizing")
    with (
        temporary_folder(job.out),
        configs.failing_as(FailureClass.OPTIMIZE, "the optimization failed"),
    ):
        from winml.modelkit.onnx import copy_onnx_model

        cached = _cache.of(start)
        model = cached.optimized(start, None if settings["skip"] else settings["flags"])
        analyses: list[Analysis] = []
        if settings["auto"] and not settings["skip"]:
            model, analyses = _loop(job, cached, model, settings["off"])
        copy_onnx_model(model, job.out / MODEL)
        patches.settle()
    _check(analyses, job)
    return StageReport(_facts(settings, analyses))


def _loop(
    job: StageJob, cached: ExportCache, model: Path, off: Collection[str]
) -> tuple[Path, list[Analysis]]:
    """`off`: switches that the analyzer may not set."""
    rules = job.params["rules"]
    analyses = []
    for number in range(1, ITERATIONS + 1):
        job.progress(f"analyzing {number}/{ITERATIONS}")
        found = cached.analysis(model, rules).without(off)
        analyses.append(found)
        if not found.flags:
            break
        job.progress(f"optimizing {number}/{ITERATIONS}")
        model = cached.optimized(model, found.flags)
    analyses.append(cached.analysis(model, rules).without(off))
    return model, analyses


def _settings(job: StageJob) -> dict[str, Any]:
    """The settings of this stage, from the configuration or a recipe."""
    found: Mapping[str, Any] = configs.read(job.inputs["config"])
    if "recipe" in job.params:
        found = job.params["recipe"].get(job.component, {})
    switches = job.params.get("switches", {})
    return {
        "flags": {**(found.get("optim") or {}), **switches},
        "off": [name for name, on in switches.items() if not on],
        "auto": bool(job.params.get("analyzer", found.get("auto", True))),
        "skip": bool(found.get("skip_optimize", False)) and not switches,
    }


def _check(analyses: list[Analysis], job: StageJob) -> None:
    operators = analyses[-1].unsupported if analyses else ()
    if operators:
        raise unsupported(
            f"according to the rule data {job.params['rules']} the target cannot run "
            f"{', '.join(operators)}",
            "winml analyze tells which nodes; skip this cell in the catalog",
        )


def _facts(settings: Mapping[str, Any], analyses: list[Analysis]) -> dict[str, Any]:
    discovered: dict[str, Any] = {}
    for one in analyses[:-1]:
        discovered.update(one.flags)
    last = analyses[-1] if analyses else None
    return {
        "optim": {**settings["flags"], **discovered},
        "autoconf": discovered,
        "analysis": None if last is None else last.as_json(),
        "iterations": max(len(analyses) - 1, 0),
        "converged": last is None or not last.flags,
    }

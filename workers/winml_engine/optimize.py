"""The loop of optimizer and analyzer for a target, with every step cached for the next target.

`winml build` optimizes, lets the static analyzer look for fusions that the target's rule data
favours, applies those, and analyzes again, up to three times. This loop makes the same calls in
the same order, but none of them twice: targets start from the same graph, mostly arrive at the
same flags, and the last analysis is often of a graph that has just been analyzed.

Graphs and analyses are kept by the bytes of the graph, the flags and the rule data, which is all
that they depend on: in the temporary folder of the host process, for the last few exports only (a
composite has several); a cell gets copies of them.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from machine.files import remove_tree
from matrix.status import FailureClass
from workers.engine import StageJob, StageReport
from workers.sources.errors import unsupported
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs
from workers.winml_engine import patches
from workers.winml_engine.config import MODEL

GRAPH = "iter.onnx"
KEPT = 4
"""Exports whose graphs are kept: about the components of one model."""
NO_RULES = ("CPUExecutionProvider", "cpu")
"""A target for which winml-cli has no rule data; the analysis of all such targets is the same."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the analyzer says about a graph."""

    flags: Mapping[str, Any]
    unsupported: tuple[str, ...]
    partial: tuple[str, ...]
    findings: int

    def without(self, off: Collection[str]) -> Analysis:
        """The same without suggestions that are switched off."""
        flags = {name: value for name, value in self.flags.items() if name not in off}
        return replace(self, flags=flags)

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "unsupported": list(self.unsupported),
            "partial": list(self.partial),
            "findings": self.findings,
            "suggested": dict(self.flags),
        }


@dataclass(slots=True)
class ExportCache:
    """The graphs made from one export, and their analyses."""

    folder: Path
    digest: str
    """Of the export."""
    _graphs: dict[tuple[str, str], Path] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)
    _analyses: dict[tuple[str, str | None], Analysis] = field(default_factory=dict)

    def optimized(self, graph: Path, flags: Mapping[str, Any] | None) -> Path:
        """The export, or a graph of this cache, optimized with these flags and only those; None:
        as it is."""
        digest = self._digests.get(graph, self.digest)
        key = (digest, json.dumps(None if flags is None else dict(flags), sort_keys=True))
        if key not in self._graphs:
            target = Path(tempfile.mkdtemp(dir=self.folder)) / GRAPH
            transform(graph, target, flags)
            self._digests[target] = model_digest(target)
            self._graphs[key] = target
        return self._graphs[key]

    def analysis(self, graph: Path, rules: str | None) -> Analysis:
        """The analysis of a graph of this cache."""
        key = (self._digests[graph], rules)
        if key not in self._analyses:
            self._analyses[key] = analyze(graph, rules)
        return self._analyses[key]


@dataclass(slots=True)
class Cache:
    """The caches of the last few exports."""

    home: Path
    _exports: OrderedDict[str, ExportCache] = field(default_factory=OrderedDict)

    def of(self, export: Path) -> ExportCache:
        """The cache of an export; an empty one for an export that was not used lately."""
        digest = model_digest(export)
        found = self._exports.pop(digest, None)
        if found is None or not found.folder.is_dir():
            self._evict()
            found = ExportCache(Path(tempfile.mkdtemp(prefix="winml-", dir=self.home)), digest)
        self._exports[digest] = found
        return found

    def _evict(self) -> None:
        patches.forget_models()
        while len(self._exports) >= KEPT:
            _digest, oldest = self._exports.popitem(last=False)
            remove_tree(oldest.folder)


def transform(graph: Path, target: Path, flags: Mapping[str, Any] | None) -> None:
    """One run of winml-cli's optimizer; without flags at all, a copy."""
    if flags is None:
        from winml.modelkit.onnx import copy_onnx_model

        copy_onnx_model(graph, target)
    else:
        from winml.modelkit.optim import optimize_onnx

        optimize_onnx(model=graph, output=target, use_external_data=True, **flags)


def analyze(graph: Path, rules: str | None) -> Analysis:
    """One run of winml-cli's static analyzer."""
    from winml.modelkit.analyze import analyze_onnx

    provider, _, device = rules.rpartition("_") if rules else (NO_RULES[0], "", NO_RULES[1])
    found = analyze_onnx(
        graph,
        ep=provider,
        device=device.lower(),
        run_unknown_op=False,
        on_node_result=lambda _result: None,  # or it draws a bar of its own
    )
    flags = found.optimization_config.to_dict() if found.optimization_config else {}
    return Analysis(
        flags=flags,
        unsupported=tuple(found.lint.error_patterns),
        partial=tuple(found.lint.warning_patterns),
        findings=int(found.lint.info),
    )


def model_digest(model: Path) -> str:
    """Of a graph and the weights beside it."""
    digest = hashlib.sha256()
    for file in (model, model.with_name(f"{model.name}.data")):
        if file.exists():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


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

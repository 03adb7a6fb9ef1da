"""Quantizes a graph, and repeats it with other settings while its outputs miss parity.

The order is fixed; each step changes the best graph so far:

    percentile   activation ranges without the outermost values
    wide         16 bits for the quarter of the operators that lose the most
    wider        16 bits for half of them, as many as the label of the precision allows
    float        the first quarter stays in floating point, the second gets 16 bits; operators
                 whose rounded result loses more than a tenth stay in floating point too

The first graph that reaches parity is taken. If none does, the best one is kept, and
verification judges it. Ranges come from the samples of the part `fit`, attempts are compared on
those of `choose`, and the verdict is given on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine.files import remove_tree
from workers.engine import StageError, StageJob
from workers.numerics.compare import MOST_DB
from workers.optimum_engine import losses, qdq
from workers.optimum_engine.float_graph import FloatGraph
from workers.optimum_engine.losses import Distance
from workers.optimum_engine.qdq import Settings
from workers.samples import files
from workers.samples.parts import CHOOSE, FIT
from workers.sources import model_file, onnx_graph

ASKED = "as asked"
_DIGITS = 3
"""Losses are compared with so many digits: CPUs differ in the others."""
_QUARTERS = {"wide": 1, "wider": 2, "float": 2}
"""Step -> how many quarters of the operators have more than 8 bits."""
_LOSSY = 0.1


@dataclass(frozen=True, slots=True)
class Attempt:
    """A graph that was quantized in one way."""

    step: str
    settings: Settings
    distance: Distance
    folder: Path = Path()

    @property
    def snr(self) -> float:
        """Of its worst output."""
        return self.distance.snr


@dataclass(frozen=True, slots=True)
class Ranking:
    """The operators of a graph, ordered by their loss if all have 8 bits."""

    names: Sequence[str]
    """Those with a weight, beginning with the one that loses most."""
    lossy: frozenset[str] = frozenset()
    """Those, with a weight or without, whose results lose too much."""


def convert(
    job: StageJob, source: Path, temp: Path, precision: str, blocked: Sequence[str]
) -> tuple[Any, Path, dict[str, Any]]:
    """The quantized graph of one component, where its other weights are, and facts about it."""
    sets = files.load(job.inputs["inputs"], job.component, FIT)
    asked = Settings.asked(precision, blocked, job.params)
    graph = FloatGraph(source, sets, temp, asked, job.progress)
    if "parity" not in job.params:
        model = graph.quantized(asked)
        return model, graph.folder, qdq.facts(model, len(sets))
    trials = _Trials(job, graph, source, temp)
    first = trials.carry_out(ASKED, asked)
    tried = search(first, job.params["requantize"], trials.carry_out, trials.rank)
    folder = best(tried).folder
    model = model_file.load_graph(folder)
    return model, folder, {**qdq.facts(model, len(sets)), **told(tried)}


def search(
    first: Attempt,
    steps: Iterable[str],
    carry_out: Callable[[str, Settings], Attempt],
    rank: Callable[[Attempt], Ranking],
) -> list[Attempt]:
    """All attempts in their order, up to the first that parity has nothing against."""
    tried = [first]
    for step in steps:
        so_far = best(tried)
        if not so_far.distance.fault:
            break
        settings = changed(step, so_far, rank)
        if settings != so_far.settings:
            tried.append(carry_out(step, settings))
    return tried


def best(tried: Sequence[Attempt]) -> Attempt:
    """The last one if it passes, else the one with the least noise, of equal ones the earliest."""
    if not tried[-1].distance.fault:
        return tried[-1]
    return max(tried, key=lambda one: one.snr)


def changed(step: str, attempt: Attempt, rank: Callable[[Attempt], Ranking]) -> Settings:
    """The settings of an attempt with what a step changes."""
    settings = attempt.settings
    if step == "percentile":
        return replace(settings, calibration="percentile")
    ranking = rank(attempt)
    names, count = ranking.names, len(ranking.names)
    least = 1 if count > 1 else 0
    quarter, most = max(least, count // 4), max(least, count * _QUARTERS[step] // 4)
    if step == "float":
        floats = ranking.lossy | frozenset(names[:quarter])
        return replace(settings, floats=floats, wide=frozenset(names[quarter:most]) - floats)
    return replace(settings, wide=frozenset(names[:most]))


def ranking(precision: str, weights: Mapping[str, float], results: Mapping[str, float]) -> Ranking:
    """By the type that gets more bits: weights in w8a16, results in w8a8."""
    lost = weights if precision == "w8a16" else {name: results.get(name, 0.0) for name in weights}
    names = sorted(lost, key=lambda name: (-round(lost[name], _DIGITS), name))
    return Ranking(names, frozenset(name for name, loss in results.items() if loss > _LOSSY))


def told(tried: Sequence[Attempt]) -> dict[str, Any]:
    """Facts about more than one attempt."""
    if len(tried) == 1:
        return {}
    chosen, first = best(tried), tried[0]
    facts: dict[str, Any] = {
        "attempts": [{"step": one.step, "snr": one.snr} for one in tried],
        "applied": chosen.step,
    }
    for name in ("wide", "floats"):
        if names := getattr(chosen.settings, name):
            facts[name] = sorted(names)
    if chosen is first:
        notice = f"quantized in {len(tried)} ways, none better: {first.snr:g} dB above the error"
    else:
        gain = f"{first.snr:g} -> {chosen.snr:g} dB above the error"
        short = " (still misses parity)" if chosen.distance.fault else ""
        notice = f"quantized again: {described(chosen.settings)}, {gain}{short}"
    return {**facts, "notice": notice}


def described(settings: Settings) -> str:
    """What is not as usual."""
    parts = []
    if settings.calibration == "percentile":
        parts.append("percentile calibration")
    for names, what in ((settings.wide, "with 16 bits"), (settings.floats, "in float")):
        if names:
            parts.append(f"{len(names)} operator{'s' * (len(names) > 1)} {what}")
    return ", ".join(parts)


class _Trials:
    """Carries out attempts at one graph."""

    def __init__(
        self,
        job: StageJob,
        graph: FloatGraph,
        source: Path,
        temp: Path,
    ) -> None:
        self._job = job
        self._graph = graph
        self._sets = files.load(job.inputs["inputs"], job.component, CHOOSE)
        self._judge = losses.Judge(source, self._sets, job.params["parity"])
        self._temp = temp
        self._folders: dict[Settings, Path] = {}
        self._ranked: dict[Settings, Ranking] = {}

    def carry_out(self, step: str, settings: Settings) -> Attempt:
        """Quantize, and compare the outputs."""
        folder = self._temp / f"attempt-{len(self._folders)}"
        if self._folders:
            self._job.progress(f"quantizing again: {described(settings)}")
        self._folders[settings] = folder
        try:
            model = self._graph.quantized(settings)
            onnx_graph.sort(model.graph)
            model_file.save(model, folder, self._graph.folder)
            distance = self._judge.distance(folder)
        except StageError as error:
            if step == ASKED and not folder.is_dir():
                raise
            return Attempt(step, settings, Distance(-MOST_DB, str(error)), folder)
        return Attempt(step, settings, distance, folder)

    def rank(self, attempt: Attempt) -> Ranking:
        """By what they lose on one sample."""
        plain = replace(attempt.settings, wide=frozenset(), floats=frozenset())
        if plain not in self._ranked:
            self._job.progress("comparing operators")
            self._ranked[plain] = ranking(plain.precision, *self._losses(plain))
        return self._ranked[plain]

    def _losses(self, plain: Settings) -> tuple[dict[str, float], dict[str, float]]:
        temp = self._temp / f"losses-{len(self._ranked)}"
        temp.mkdir()
        ready, sample = self._graph.folder, self._sets[0]
        weights = losses.of_weights(ready, self._folders[plain], sample, temp / "weights")
        results = losses.of_results(
            ready, self._graph.ranges(plain), sample, temp / "results", qdq.LEVELS[plain.precision]
        )
        remove_tree(temp)
        return weights, results

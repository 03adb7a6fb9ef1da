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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from machine.files import remove_tree
from matrix.verification import IN_FLOAT, MORE_BITS
from workers.engine import StageError, StageJob
from workers.numerics.compare import MOST_DB
from workers.optimum_engine import label, losses, qdq, rewrites
from workers.optimum_engine.float_graph import FloatGraph
from workers.optimum_engine.label import Sizes
from workers.optimum_engine.losses import Distance
from workers.optimum_engine.qdq import Settings
from workers.samples import files
from workers.samples.parts import CHOOSE, FIT
from workers.sources import model_file, onnx_graph
from workers.sources.errors import quantize_error

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
    applied: Mapping[str, Any] = field(default_factory=dict)
    """What has more bits than the precision says (`label`)."""

    @property
    def snr(self) -> float:
        """Of its worst output."""
        return self.distance.snr


@dataclass(frozen=True, slots=True)
class Ranking:
    """The operators of a graph, ordered by their loss if all have 8 bits."""

    names: Sequence[str]
    """Those with a weight, beginning with the one that loses most."""
    sizes: Sizes
    lossy: frozenset[str] = frozenset()
    """Those, with a weight or without, whose results lose too much."""


def convert(
    job: StageJob, source: Path, temp: Path, precision: str, blocked: Sequence[str]
) -> tuple[Any, Path, dict[str, Any]]:
    """The quantized graph of one component, where its other weights are, and facts about it."""
    sets = files.load(job.inputs["inputs"], job.component, FIT)
    needed = rewrites.read(job.inputs["rewrites"])
    asked = Settings.asked(precision, blocked, job.params, needed)
    graph = FloatGraph(source, sets, temp, asked, job.progress)
    if "parity" not in job.params:
        _check_label(precision, _applied(model_file.load_graph(graph.folder), asked))
        model = graph.quantized(asked)
        return model, graph.folder, qdq.facts(model, len(sets))
    trials = _Trials(job, graph, source, temp)
    first = trials.carry_out(ASKED, asked)
    tried = search(first, job.params["requantize"], trials.carry_out, trials.rank)
    chosen = best(tried)
    _check_label(precision, chosen.applied)
    folder = chosen.folder
    model = model_file.load_graph(folder)
    return model, folder, {**qdq.facts(model, len(sets)), **told(tried)}


def _check_label(precision: str, applied: Mapping[str, Any]) -> None:
    if beyond := label.fault(applied):
        raise quantize_error(
            f"the graph is no {precision}: {beyond}",
            "set another precision, or fewer float_ops, for this model in the catalog",
        )


def _applied(model: Any, settings: Settings) -> dict[str, Any]:
    """What these settings leave in more bits than the precision says, in this float graph."""
    blocked = {node.name for node in model.graph.node if node.op_type in settings.blocked}
    floats = settings.floats | blocked
    return label.applied(settings.precision, label.sizes(model), settings.wide, floats)


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
    own = ranking.sizes
    # In w8a8, 16 bits are for results: they leave weights as they are.
    weights = own.weights if settings.precision == "w8a16" else {}
    if step == "float":
        order = [*names[:quarter], *sorted(ranking.lossy.difference(names[:quarter]))]
        floats = label.within(order, own.macs, IN_FLOAT)
        left = MORE_BITS - sum(weights.get(name, 0.0) for name in floats)
        wide = [name for name in names[:most] if name not in floats]
        return replace(
            settings,
            floats=frozenset(floats),
            wide=frozenset(label.within(wide, weights, left)),
        )
    return replace(settings, wide=frozenset(label.within(names[:most], weights, MORE_BITS)))


def ranking(
    precision: str,
    weights: Mapping[str, float],
    results: Mapping[str, float],
    own: Sizes,
) -> Ranking:
    """By the type that gets more bits: weights in w8a16, results in w8a8."""
    lost = weights if precision == "w8a16" else {name: results.get(name, 0.0) for name in weights}
    names = sorted(lost, key=lambda name: (-round(lost[name], _DIGITS), name))
    return Ranking(names, own, frozenset(name for name, loss in results.items() if loss > _LOSSY))


def told(tried: Sequence[Attempt]) -> dict[str, Any]:
    """Facts about more than one attempt."""
    if len(tried) == 1:
        return {}
    chosen, first = best(tried), tried[0]
    facts: dict[str, Any] = {
        "attempts": [{"step": one.step, "snr": one.snr} for one in tried],
        "applied": {"step": chosen.step, **chosen.applied},
    }
    for name in ("wide", "floats"):
        if names := getattr(chosen.settings, name):
            facts[name] = sorted(names)
    if chosen is first:
        notice = f"quantized in {len(tried)} ways, none better: {first.snr:g} dB above the error"
    else:
        gain = f"{first.snr:g} -> {chosen.snr:g} dB above the error"
        short = " (still misses parity)" if chosen.distance.fault else ""
        named = chosen.applied.get("label", chosen.settings.precision)
        notice = f"{named}: quantized again{described(chosen.settings)}, {gain}{short}"
    return {**facts, "notice": notice}


def described(settings: Settings) -> str:
    """What is not as usual, beside what the label says."""
    return " with percentile calibration" if settings.calibration == "percentile" else ""


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
        self._float = model_file.load_graph(graph.folder)
        self._judge = losses.Judge(source, self._sets, job.params["parity"])
        self._temp = temp
        self._folders: dict[Settings, Path] = {}
        self._ranked: dict[Settings, Ranking] = {}

    def carry_out(self, step: str, settings: Settings) -> Attempt:
        """Quantize, and compare the outputs."""
        folder = self._temp / f"attempt-{len(self._folders)}"
        if self._folders:
            self._job.progress(f"quantizing again: {step}")
        self._folders[settings] = folder
        try:
            model = self._graph.quantized(settings)
            onnx_graph.sort(model.graph)
            model_file.save(model, folder, self._graph.folder)
            found = _applied(self._float, settings)
            if beyond := label.fault(found):
                distance = Distance(-MOST_DB, beyond)
            else:
                distance = self._judge.distance(folder)
        except StageError as error:
            if step == ASKED and not folder.is_dir():
                raise
            worst = Distance(-MOST_DB, str(error))
            return Attempt(step, settings, worst, folder, _applied(self._float, settings))
        return Attempt(step, settings, distance, folder, found)

    def rank(self, attempt: Attempt) -> Ranking:
        """By what they lose on one sample."""
        plain = replace(attempt.settings, wide=frozenset(), floats=frozenset())
        if plain not in self._ranked:
            self._job.progress("comparing operators")
            sizes = label.sizes(self._float)
            self._ranked[plain] = ranking(plain.precision, *self._losses(plain), sizes)
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

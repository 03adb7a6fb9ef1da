"""Quantizes a graph, and repeats it with other settings while its outputs miss parity.

The order is fixed. Each step changes the best graph so far, but none that of `percentile`: no bits
bring back what it cuts off.

    percentile   activation ranges without the outermost values
    smooth       channels that stand out move from activations into weights; w8a8 only
    wide         16 bits for the quarter of the operators that lose the most
    wider        16 bits for half of them, or as many as the label of the precision allows
    float        the first quarter stays in floating point, the second gets 16 bits; operators
                 whose rounded result costs the outputs more than a tenth stay there too,
                 with those that read it, and all before them if these compute little

The first graph that reaches parity is taken. If none does, the best one is kept, and
verification judges it. Ranges come from the samples of the part `fit`, attempts are compared on
those of `choose`, and the verdict is given on others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
PERCENTILE, SMOOTH = "percentile", "smooth"
_DIGITS = 3
"""Losses are compared with so many digits: CPUs differ in the others."""
_GAIN = 1.0
"""How many decibels make a graph better than an earlier one."""
_LOSSY = 0.1
_LITTLE = 0.1
"""The share of the multiplications of operators that stay in float because of those after them."""


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
    """Those that may get more bits, beginning with the one that loses most."""
    sizes: Sizes
    most: Callable[[], int]
    """How many of them may have more bits."""
    lossy: frozenset[str] = frozenset()
    """Those, with a weight or without, whose rounded results the outputs do not bear, those that
    read these, and perhaps those before them."""


def convert(
    job: StageJob, source: Path, temp: Path, precision: str, blocked: Sequence[str]
) -> tuple[Any, Path, dict[str, Any]]:
    """The quantized graph of one component, where its other weights are, and facts about it."""
    sets = files.load(job.inputs["inputs"], job.component, FIT)
    needed = rewrites.read(job.inputs["rewrites"])
    asked = Settings.asked(precision, blocked, job.params, needed)
    graph = FloatGraph(source, sets, temp, asked, job.progress)
    if "parity" not in job.params:
        applied = _applied(model_file.load_graph(graph.folder), asked)
        _check_label(precision, applied)
        model = graph.quantized(asked)
        return model, graph.folder, {**qdq.facts(model, len(sets)), **label.told(applied)}
    trials = _Trials(job, graph, source, temp)
    first = trials.carry_out(ASKED, asked)
    steps = [step for step in job.params["requantize"] if step != SMOOTH or graph.smoothable]
    tried = search(first, steps, trials.carry_out, trials.rank)
    chosen = best(tried)
    _check_label(precision, chosen.applied)
    folder = chosen.folder
    model = model_file.load_graph(folder)
    return model, folder, {**qdq.facts(model, len(sets)), **told(tried)}


def _check_label(precision: str, applied: Mapping[str, Any]) -> None:
    if beyond := label.fault(applied):
        raise quantize_error(
            f"the graph is not {precision}: {beyond}",
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
        if not best(tried).distance.fault:
            break
        basis = best([one for one in tried if one.step != PERCENTILE])
        settings = changed(step, basis, rank)
        if settings != basis.settings:
            tried.append(carry_out(step, settings))
    return tried


def best(tried: Sequence[Attempt]) -> Attempt:
    """The last one if it passes, else the one with the least noise, of nearly equal ones the
    earliest: differences between two ruined graphs say nothing."""
    chosen = tried[0]
    for one in tried[1:]:
        if not one.distance.fault or one.snr >= chosen.snr + _GAIN:
            chosen = one
    return chosen


def changed(step: str, attempt: Attempt, rank: Callable[[Attempt], Ranking]) -> Settings:
    """The settings of an attempt with what a step changes."""
    settings = attempt.settings
    if step == PERCENTILE:
        return replace(settings, calibration=PERCENTILE)
    if step == SMOOTH:
        return replace(settings, smooth=True)
    ranking = rank(attempt)
    names, count = ranking.names, len(ranking.names)
    least = 1 if count > 1 else 0
    quarter = max(least, count // 4)
    most = quarter if step == "wide" else max(least, ranking.most())
    own = ranking.sizes
    # In w8a8, 16 bits are for results: they leave weights as they are.
    weights = own.weights if settings.precision == "w8a16" else {}
    if step == "float":
        order = sorted(ranking.lossy)
        order += [name for name in names[:quarter] if name not in ranking.lossy]
        floats = label.within(label.within(order, own.macs, IN_FLOAT), own.weights, MORE_BITS)
        left = MORE_BITS - sum(weights.get(name, 0.0) for name in floats)
        wide = [name for name in names[:most] if name not in floats]
        return replace(
            settings,
            floats=frozenset(floats),
            wide=frozenset(label.within(wide, weights, left)),
        )
    return replace(settings, wide=frozenset(label.within(names[:most], weights, MORE_BITS)))


def ordered(lost: Mapping[str, float]) -> list[str]:
    """Operators by what they lose."""
    return sorted(lost, key=lambda name: (-round(lost[name], _DIGITS), name))


def told(tried: Sequence[Attempt]) -> dict[str, Any]:
    """Facts about more than one attempt, or about a first one that has more bits than its name
    says."""
    chosen, first = best(tried), tried[0]
    if len(tried) == 1:
        return label.told(chosen.applied)
    facts: dict[str, Any] = {
        "attempts": [{"step": one.step, "snr": one.snr} for one in tried],
        "applied": {"step": chosen.step, **chosen.applied},
    }
    for name in ("wide", "floats"):
        if names := getattr(chosen.settings, name):
            facts[name] = sorted(names)
    if chosen is first:
        notice = f"quantized in {len(tried)} ways, none better: {first.snr:g} dB above the error"
        if said := label.told(chosen.applied):
            notice = f"{said['notice']}: {notice}"
    else:
        gain = f"{first.snr:g} -> {chosen.snr:g} dB above the error"
        short = " (still misses parity)" if chosen.distance.fault else ""
        named = chosen.applied.get("label", chosen.settings.precision)
        notice = f"{named}: quantized again{described(chosen.settings)}, {gain}{short}"
    return {**facts, "notice": notice}


def described(settings: Settings) -> str:
    """What is not as usual, beside what the label says."""
    parts = [f"{PERCENTILE} calibration"] if settings.calibration == PERCENTILE else []
    if settings.smooth:
        parts.append("smoothed channels")
    return f" with {' and '.join(parts)}" if parts else ""


def _with_readers(model: Any, names: Collection[str]) -> frozenset[str]:
    """These operators and those that read their results: if one of these computes in integers, it
    has the result rounded."""
    made = {name for node in model.graph.node if node.name in names for name in node.output}
    readers = {node.name for node in model.graph.node if not made.isdisjoint(node.input)}
    return frozenset({*names, *readers})


def before(model: Any, names: Collection[str]) -> frozenset[str]:
    """The operators from whose results these compute theirs.

    Before a logarithm of what may be silence, no result bears to be rounded, but samples that are
    loud do not show it.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    pending = [node for node in model.graph.node if node.name in names]
    found: set[str] = set()
    while pending:
        made = {name: makers[name] for name in pending.pop().input if name in makers}
        new = {node.name: node for node in made.values() if node.name not in found}
        found |= new.keys()
        pending += new.values()
    return frozenset(found)


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
            model_file.save(model, folder, self._graph.prepared(settings))
            found = _applied(self._float, settings)
            if settings.precision == "w8a8":
                found["results"] = label.wide_results(model)
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
        """By what they lose on a few samples."""
        plain = replace(attempt.settings, wide=frozenset(), floats=frozenset())
        if plain not in self._ranked:
            self._job.progress("comparing operators")
            self._ranked[plain] = self._ranking(plain)
        return self._ranked[plain]

    def _ranking(self, plain: Settings) -> Ranking:
        weights, results = self._losses(plain)
        model = model_file.load_graph(self._graph.prepared(plain))
        sizes = label.sizes(self._float)
        lossy = _with_readers(model, {name for name, loss in results.items() if loss > _LOSSY})
        more = lossy | before(model, lossy)
        if sum(sizes.macs.get(name, 0.0) for name in more) <= _LITTLE:
            lossy = more
        if plain.precision == "w8a16":
            return Ranking(ordered(weights), sizes, lambda: len(weights) // 2, lossy)
        names = ordered(results)
        return Ranking(names, sizes, partial(self._room, plain, names), lossy)

    def _room(self, plain: Settings, names: Sequence[str]) -> int:
        """How many of these operators may have results of 16 bits. Where one meets a result of 8
        bits it is converted, and conversions count too."""
        count, share = len(names) // 2, 1.0
        while count and share > MORE_BITS:
            wide = replace(plain, wide=frozenset(names[:count]))
            share = label.wide_results(self._graph.quantized(wide))
            if share > MORE_BITS:
                count = min(count - 1, int(count * MORE_BITS / share))
        return count

    def _losses(self, plain: Settings) -> tuple[dict[str, float], dict[str, float]]:
        temp = self._temp / f"losses-{len(self._ranked)}"
        temp.mkdir()
        ready = self._graph.prepared(plain)
        weights: dict[str, float] = {}
        if plain.precision == "w8a16":
            weights = losses.of_weights(ready, self._folders[plain], self._sets, temp / "weights")
        ranges, steps = self._graph.ranges(plain), qdq.LEVELS[plain.precision]
        exact = qdq.in_float(plain)
        results = losses.of_results(ready, ranges, self._sets, temp / "results", steps, exact)
        remove_tree(temp)
        return weights, results

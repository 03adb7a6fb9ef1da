"""All tunings of a name: the document that their pages and summaries show, and the same as text."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.observe.evidence import EMULATED
from flows.output.masking import masked_json
from flows.output.quantity import brief, shortened, show_duration, show_ms
from flows.output.table import render
from flows.tune.insight import Insight
from flows.tune.record import Recorded, Step, Trial, Tuning
from matrix.codec import from_json, to_json
from matrix.trials import Phase, TuningStatus, Verdict

MOST_OPERATORS = 12
Fact = tuple[str, str]
LONGEST_KEY = 28
LEAST_WHY = 16
"""Columns; in fewer, a reason says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial; gains are percent of the baseline's time."""

    key: str
    title: str
    settings: tuple[str, ...]
    phase: str
    verdict: str
    """Empty: it is not settled yet."""
    why: str
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    """The noise floor."""
    confirmed: bool = False
    """The numbers are those of fresh sessions with the roles swapped."""
    screen: float | None = None
    placed: str = ""
    """Why it had its place in the order."""
    finding: str = ""
    seconds: float = 0.0
    ran: tuple[str, ...] = ()
    """Stages that ran for it; the others were shared."""
    accuracy: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRow:
    """A hypothesis that was not tried."""

    key: str
    title: str
    why: str
    finding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPart:
    """One model on one target."""

    model: str
    target: str
    conclusion: str
    facts: tuple[Fact, ...]
    trials: tuple[TrialRow, ...]
    status: str = "replayed"
    message: str = ""
    emulated: bool = False
    champion: str = ""
    skipped: tuple[SkipRow, ...] = ()
    insight: tuple[Fact, ...] = ()
    candidates: tuple[tuple[str, int, str], ...] = ()
    """Fusions that the graph has places for: name, count, evidence."""
    operators: tuple[Any, ...] = ()
    """Groups of operators that make the difference between champion and baseline."""
    unexplained: str = ""
    """Why there are none."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All tunings of a name."""

    name: str
    tunings: tuple[TuningPart, ...]
    schema: int = 1

    def to_json(self) -> Any:
        """As programs read it; secrets are masked."""
        return masked_json(to_json(self))


def document(name: str, found: Sequence[Recorded]) -> Document:
    """The document of recorded tunings."""
    return Document(name=name, tunings=tuple(map(part_of, found)))


def tried(found: Recorded) -> list[Trial]:
    """The trials that were made, without the baseline."""
    trials = (one for one in found.trials if one.phase is not Phase.BASELINE)
    return [one for one in trials if one.verdict is not Verdict.SKIPPED]


def outcome_of(trials: Sequence[Trial]) -> str:
    """How many trials got which verdict: `2 worse, 1 better`."""
    counts = Counter(str(one.verdict) for one in trials if one.verdict)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return told or "nothing was tried"


def took(tuning: Tuning) -> str:
    """`3m20s, 85% of it measuring`; empty: nothing yet."""
    share = f"{tuning.measuring / tuning.spent:.0%} of it measuring" if tuning.spent else ""
    return share and f"{show_duration(tuning.spent)}, {share}"


def conclusion(found: Recorded) -> str:
    """The result of a tuning, in a line."""
    trial = found.champion
    if trial is not None and trial.gain is not None:
        gain = trial.gain
        return (
            f"{trial.key} is {gain.gain:.1f} % faster than the baseline "
            f"({gain.low:+.1f} to {gain.high:+.1f} %), confirmed in fresh sessions"
        )
    trials = tried(found)
    if found.tuning.emulated and any(one.verdict is Verdict.BETTER for one in trials):
        return "no champion: the times are an emulator's, and no evidence for the device"
    return f"no champion: {outcome_of(trials)}"


def part_of(found: Recorded) -> TuningPart:
    """One tuning."""
    tuning = found.tuning
    steps = {one.key: one for one in (*(tuning.plan or ()), *(tuning.combinations or ()))}
    skipped = [one for one in steps.values() if one.skip]
    insight = from_json(dict(tuning.insight), Insight, exact=False)
    explained = dict(tuning.explained)
    return TuningPart(
        model=tuning.model,
        target=tuning.target,
        status=str(tuning.status),
        message=tuning.message,
        emulated=tuning.emulated,
        conclusion=conclusion(found),
        champion=tuning.champion,
        facts=tuple(_facts(tuning)),
        trials=tuple(_row(one, steps.get(one.key)) for one in tried(found)),
        skipped=tuple(
            SkipRow(key=one.key, title=one.title, why=one.skip, finding=one.finding)
            for one in skipped
        ),
        insight=tuple(_insight(insight)),
        candidates=tuple((c.name, c.count, ", ".join(c.evidence)) for c in insight.candidates),
        operators=tuple(explained.get("groups", ())[:MOST_OPERATORS]),
        unexplained=str(explained.get("reason", "")),
        notes=tuning.notes,
    )


def _row(one: Trial, step: Step | None) -> TrialRow:
    broken = next((rung for rung in one.accuracy if rung.passed is False), None)
    parity = next((rung for rung in one.accuracy if rung.name == "parity"), None)
    shown, numbers = broken or parity, ("gain", "low", "high", "floor")
    return TrialRow(
        key=one.key,
        title=one.title,
        settings=one.settings,
        phase=str(one.phase),
        verdict=str(one.verdict or ""),
        why=one.why,
        **{name: getattr(one.gain, name) for name in numbers if one.gain},
        confirmed=one.confirmed is not None,
        screen=one.screen,
        placed=step.why if step else "",
        finding=step.finding if step else "",
        seconds=one.seconds,
        ran=one.making.ran if one.making else (),
        accuracy=f"{shown.name}: {shown.detail}" if shown else "",
        warnings=one.warnings,
    )


def _facts(tuning: Tuning) -> Iterator[Fact]:
    protocol = tuning.protocol
    if tuning.runtime is not None:
        words = f"{tuning.runtime.name}, {tuning.runtime.version}"
        yield "runtime", f"{words} (emulated)" if tuning.emulated else words
    if tuning.machine is not None:
        yield "machine", f"{tuning.machine.name}, {tuning.machine.processor}"
    yield "engine", tuning.engine
    if tuning.baseline_ms is not None:
        yield "baseline", show_ms(tuning.baseline_ms)
    runs = f"{protocol.sessions} sessions of {protocol.iterations} runs"
    yield "protocol", f"{runs}, interleaved with the baseline, seed {tuning.seed}"
    yield "least gain", f"{tuning.min_gain:g} %"
    if spent := took(tuning):
        yield "took", spent


def _insight(insight: Insight) -> Iterator[Fact]:
    if not insight.available:
        yield "graph", insight.reason or "not known"
        return
    yield "nodes", f"{insight.nodes}, opset {insight.opset}"
    for name in ("Conv", "MatMul", "Gemm"):
        if share := insight.share(name):
            yield name, f"{share:.0%} of the nodes"
    if insight.dynamic:
        yield "open dimensions", ", ".join(insight.dynamic)
    if insight.taken is not None:
        yield "taken by the provider", f"{insight.taken:.0%} of the nodes"
    for one in insight.top:
        yield f"{one.type} (traced)", f"{one.percent:.0f} % of the time in {one.count} nodes"
    if insight.untraced:
        yield "trace", insight.untraced


def gain_text(trial: Trial) -> str:
    """`+12.3 %`; empty: it was not compared."""
    return f"{trial.gain.gain:+.1f} %" if trial.gain else ""


def interval_text(trial: Trial) -> str:
    """`+10.1 to +14.2`."""
    return f"{trial.gain.low:+.1f} to {trial.gain.high:+.1f}" if trial.gain else ""


def trial_line(trial: Trial, place: str, width: int) -> str:
    """A trial that has just got its verdict."""
    head = f"  {place}  {shortened(trial.key, LONGEST_KEY)}  {trial.verdict}"
    if trial.gain:
        return f"{head}  {gain_text(trial)} ({interval_text(trial)})"
    room = width - len(head) - 2
    return f"{head}: {brief(trial.why, room)}" if room >= LEAST_WHY else head


def report_lines(found: Sequence[Recorded], champions: Path, again: str) -> Iterator[str]:
    """All tunings of a name. `champions`: the file that keeps the winners; `again`: the arguments
    of the command that continues."""
    width = shutil.get_terminal_size((80, 24)).columns
    for one in found:
        yield from ("", *tuning_lines(one, width))
    if any(one.champion for one in found):
        build = "modelmill sweep CATALOG --champions FILE builds them"
        yield f"\n{champions} has the champions; {build}"
    if any(one.tuning.status is TuningStatus.OUT_OF_TIME for one in found):
        yield f"\nthe budget is used up; continue with: modelmill tune --resume {again}"


def tuning_lines(found: Recorded, width: int) -> Iterator[str]:
    """A tuning with all its trials."""
    tuning = found.tuning
    yield f"{tuning.model}@{tuning.target}"
    yield from (f"  {text}" for text in _about(tuning))
    if tuning.emulated:
        yield f"  {EMULATED}"
    shown = tried(found)
    if shown:
        yield from _table(found, shown, width)
    if skipped := sum(one.verdict is Verdict.SKIPPED for one in found.trials):
        yield f"  {skipped} {'hypothesis' if skipped == 1 else 'hypotheses'} skipped"
    yield f"  {_conclusion(found, shown)}"


def _about(tuning: Tuning) -> Iterator[str]:
    if tuning.runtime is not None:
        yield f"{tuning.runtime.name} {tuning.runtime.version}"
    known = tuning.baseline_ms is not None
    baseline = f"baseline {show_ms(tuning.baseline_ms or 0.0)}" if known else ""
    yield "; ".join(filter(None, (baseline, took(tuning)))) or str(tuning.status)


def _table(found: Recorded, shown: list[Trial], width: int) -> Iterator[str]:
    rows = [
        (
            f"{'*' if one.key == found.tuning.champion else ' '} {shortened(one.key, LONGEST_KEY)}",
            str(one.verdict or "not settled"),
            gain_text(one),
            interval_text(one),
        )
        for one in shown
    ]
    lines = render(("  trial", "verdict", "gain", "interval"), rows).splitlines()
    room = width - max(map(len, lines)) - 4
    longest = max(map(len, lines))
    yield f"  {lines[0]}"
    for line, one in zip(lines[1:], shown, strict=True):
        why = brief(one.why, room) if room >= LEAST_WHY and one.why else ""
        yield f"  {line.ljust(longest)}  {why}".rstrip()


def _conclusion(found: Recorded, shown: list[Trial]) -> str:
    champion, tuning = found.champion, found.tuning
    if tuning.status is TuningStatus.FAILED:
        return f"FAILED: {tuning.message}"
    late = f"; {tuning.message}" if tuning.message else ""
    if champion is not None:
        settings = " ".join(champion.settings)
        return f"champion: {champion.key} {gain_text(champion)} ({settings}){late}"
    none = "no champion, because an emulator proves nothing" if tuning.emulated else "no champion"
    return f"{none}: {outcome_of(shown)}{late}"

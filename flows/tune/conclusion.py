"""What follows from a tuning: its champion, kept in a file, and what it adds to the knowledge base,
evidence for and against findings, and new drafts.

A trial is evidence about every finding that names its settings and whose scope covers it, even if
the finding did not affect the order. Only verdicts that rest on a measurement are evidence;
contradictions are added like any other evidence. A confirmed gain that no finding covers becomes a
draft: one claim about one model on one device. Nothing is added twice and nothing is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.output.quantity import brief, counted
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.champions import comparison_digest, keep_champion
from flows.tune.knowledge import EVIDENCE, Knowledge, load_knowledge
from flows.tune.ordering import device_of
from flows.tune.record import Kept, Recorded, Step, recorded
from machine.disk import reason
from machine.files import replace_file
from machine.locks import locked
from matrix.codec import to_json
from matrix.errors import MillError, Unusable
from matrix.findings import UNKNOWN, Evidence, Finding
from matrix.globs import matches
from matrix.hypotheses import AXES
from matrix.slugs import slug
from matrix.toml import as_toml
from matrix.trials import Phase, TuningStatus, Verdict
from workers.measure.result import this_machine

DRAFTS = "drafts.toml"
MEASURED = {Verdict.BETTER, Verdict.NO_DIFFERENCE, Verdict.WORSE}
"""Verdicts that are evidence."""
_HELPS = {"first": Verdict.BETTER, "last": Verdict.WORSE, "skip": Verdict.WORSE}
"""The verdict that speaks for a finding that claims a change, by what it recommends."""


def champions_file(settings: Settings) -> Path:
    """Where champions are kept."""
    if settings.champions:
        return settings.path(settings.champions)
    return Workspace(settings).home / "champions.toml"


def conclude(settings: Settings, kept: Kept, told: Callable[[str], object]) -> None:
    """Keep what follows from the trials: the champion, and what was seen; `told`: in lines.

    A tuning that has failed may be of other tools, so it has no champion.
    """
    _learn(kept, Workspace(settings).knowledge, told)
    if kept.tuning.status is TuningStatus.FAILED:
        return
    found = Recorded(kept.tuning, tuple(kept.trials.values()))
    at = datetime.now(UTC).date().isoformat()
    file, targets = champions_file(settings), Workspace(settings).targets()
    try:
        keep_champion(file, found, targets, kept.tuning.tools, at)
    except MillError as error:
        # The others of a catalog are tuned all the same, and a resume tries it again.
        kept.change(status=TuningStatus.FAILED, message=brief(f"champion not saved: {error}"))


def _learn(kept: Kept, knowledge: Path, told: Callable[[str], object]) -> None:
    """Add what was seen to the knowledge base; the verdicts stand also if that is not possible."""
    # The state knows when it ended.
    every = recorded(kept.state, kept.tuning.name)
    found = next((one for one in every if one.tuning.id == kept.tuning.id), None)
    if found is None or found.tuning.runtime is None:
        return
    machine = found.tuning.machine or this_machine()
    seen = observations(found, device_of(found.tuning.runtime, machine))
    try:
        lines, drafts = learn(knowledge, seen)
    except MillError as error:
        told(f"  the knowledge base was not updated: {error}")
        return
    if lines:
        draft = f" and {counted(drafts, 'draft')}" if drafts else ""
        told(f"  learned: {counted(lines, 'observation')}{draft} in {knowledge}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A trial with its verdict, wherever it was measured."""

    title: str
    settings: tuple[str, ...]
    verdict: Verdict
    evidence: Evidence
    """Without the finding: `supports` is set separately for each finding."""
    finding: str = ""
    """What decided about its place, and so predicted its verdict."""


def observations(found: Recorded, device: str) -> Iterator[Observation]:
    """What a tuning has seen. Combinations say nothing about a single setting."""
    tuning = found.tuning
    steps: dict[str, Step] = {one.key: one for one in tuning.plan or ()}
    for one in found.trials:
        if one.phase is not Phase.SINGLE or one.verdict not in MEASURED or one.gain is None:
            continue
        gain = one.gain
        yield Observation(
            title=one.title,
            settings=one.settings,
            verdict=one.verdict,
            finding=steps[one.key].finding if one.key in steps else "",
            evidence=Evidence(
                supports=True,
                model=tuning.cell.model.id,
                architecture=tuning.architecture or tuning.cell.model.model_type,
                target=tuning.cell.target.label,
                device=device,
                protocol="interleaved",
                gain=round(gain.gain, 2),
                low=round(gain.low, 2),
                high=round(gain.high, 2),
                floor=round(gain.floor, 2),
                emulated=tuning.emulated,
                digest=comparison_digest(one),
                source=f"tuning {tuning.name}: {one.key}",
                at=_day(tuning.ended or tuning.began),
            ),
        )


def learn(folder: Path, seen: Iterable[Observation]) -> tuple[int, int]:
    """Add what was seen to the user's folder; returns how many lines and how many drafts.

    Raises `PlanError` for findings that cannot be read, and `Unusable`.
    """
    distinct = {(one.evidence.digest, one.settings): one for one in seen}
    seen = list(distinct.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{EVIDENCE}.lock"):
            known = load_knowledge(folder)
            drafts = {_id(one): _draft(one) for one in _unknown(known, seen)}
            if drafts:
                text = "\n".join(as_toml("finding", one) for one in drafts.values())
                _append(folder / DRAFTS, text)
            lines = list(_lines(load_knowledge(folder), seen))
            if lines:
                _append(folder / EVIDENCE, "".join(f"{json.dumps(one)}\n" for one in lines))
    except OSError as error:
        raise Unusable(
            f"what was learned cannot be kept in {folder}: {reason(error)}",
            hint="name another folder with --knowledge",
        ) from None
    return len(lines), len(drafts)


def _lines(known: Knowledge, seen: Iterable[Observation]) -> Iterator[dict[str, Any]]:
    for one in seen:
        for finding in known.findings.values():
            if not _speaks_about(one, finding):
                continue
            if any(one.evidence.digest == other.digest for other in finding.evidence):
                continue
            helps = _HELPS[finding.action] if finding.effect != "none" else Verdict.NO_DIFFERENCE
            told: Mapping[str, Any] = to_json(one.evidence)
            plain = {name: value for name, value in told.items() if value not in ("", None, False)}
            yield {
                "finding": finding.id,
                **plain,
                "supports": one.verdict is helps,
                **({"predicted": True} if one.finding == finding.id else {}),
            }


def _speaks_about(one: Observation, finding: Finding) -> bool:
    claims = finding.effect == "none" or finding.action in _HELPS
    if finding.kind != "tuning" or not claims:
        return False
    if not any(matches(text, finding.settings) for text in one.settings):
        return False
    about = one.evidence
    return finding.scope.holds(
        target=about.target,
        device=about.device,
        architecture=about.architecture,
        model=about.model,
    )


def _unknown(known: Knowledge, seen: Iterable[Observation]) -> Iterator[Observation]:
    """What was confirmed on a device, and what no finding recommends."""
    for one in seen:
        if one.verdict is not Verdict.BETTER or not one.evidence.proves("change"):
            continue
        if _id(one) in known.findings or not _claimable(one):
            continue
        told = known.findings.values()
        if not any(_speaks_about(one, two) and two.action == "first" for two in told):
            yield one


def _claimable(one: Observation) -> bool:
    """Whether a finding can name its architecture and settings, which are globs there."""
    about = one.evidence
    axes = {text.partition("=")[0] for text in one.settings}
    named = (about.target, about.architecture, about.model)
    # The profiles that a model is compiled for are a glob already.
    plain = all(_literal(text) for text in named) and all(
        _literal(text, "*?[]" if text.startswith("compiled=") else "") for text in one.settings
    )
    return plain and axes <= set(AXES) and about.architecture not in {"", UNKNOWN}


def _literal(text: str, also: str = "") -> bool:
    return text.isprintable() and not (set("*?[]{}") - set(also)) & set(text)


def _id(one: Observation) -> str:
    about = one.evidence
    return slug(f"draft-{about.target}-{about.architecture}-{'-'.join(one.settings)}")


def _draft(one: Observation) -> dict[str, Any]:
    about = one.evidence
    title = brief(one.title)
    gain = f"{about.gain:.1f} % faster ({about.low:+.1f} to {about.high:+.1f})"
    return {
        "id": _id(one),
        "kind": "tuning",
        "title": f"{title}: {about.gain:.0f} % faster on {about.architecture}",
        "observation": f"{about.model} was {gain} than its baseline, confirmed in fresh sessions.",
        "status": "draft",
        "confidence": "low",
        "falsified_by": "an interleaved comparison on the same architecture whose interval holds 0",
        "action": "first",
        "settings": list(one.settings),
        "updated": about.at,
        "scope": {"targets": [about.target], "architectures": [about.architecture]},
    }


def _append(path: Path, text: str) -> None:
    """Add to a file so that a kill leaves the old one."""
    old = path.read_bytes() if path.exists() else b""
    head = old if not old or old.endswith(b"\n") else old + b"\n"
    replace_file(path, head + text.encode(), sync=True)


def _day(seconds: float | None) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).date().isoformat() if seconds else ""
    except (OverflowError, OSError, ValueError):  # no clock has told that
        return ""

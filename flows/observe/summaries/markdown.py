"""A summary as Markdown, for the page of a pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flows.observe.diff.comparison import Change, ChangeKind, Comparison
from flows.observe.diff.text import facts
from flows.observe.evidence import judged_of, run_on
from flows.observe.failures import FailureGroup
from flows.observe.summaries.document import Duration, SummaryDocument
from flows.observe.summary import open_text
from flows.output.meanings import EXITS, LOOKS
from flows.output.quantity import brief, counted, limited, named, show_duration
from flows.output.table import plain
from matrix.errors import Exit
from matrix.status import Status
from workers.verify.ladder.levels import Proof

_MOST_CAUSES = 100
_MOST_MODELS = 8
_MOST_CHANGES = 50
_NO_NEWS = (ChangeKind.UNCHANGED, ChangeKind.STILL_FAILS, ChangeKind.UNFINISHED)


def markdown(document: SummaryDocument) -> str:
    """The file's content."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: SummaryDocument) -> Iterator[str]:
    summary, info = document.summary, document.info
    yield f"# Sweep {plain(summary.stamp)}"
    yield ""
    yield f"{_ending(document)} Feed: {plain(summary.feed)}."
    yield ""
    if summary.counts:
        yield "| status | cells | |"
        yield "|---|---:|---|"
        for name, count in summary.counts.items():
            look = LOOKS[Status(name)]
            yield f"| {look.glyph} {name.replace('_', ' ')} | {count} | {look.meaning} |"
        yield ""
    yield from _samples(document)
    if summary.groups:
        yield from _failures(document)
    if document.since is not None:
        yield from _since(document.since)
    if document.unshown:
        yield f"Prefect does not show all of this run: {plain(document.unshown)}."
    if summary.resumable:
        yield f"{open_text(summary)}: `modelmill resume {info.stamp}{summary.flags}` continues it."


def _samples(document: SummaryDocument) -> Iterator[str]:
    """On what the cells were verified, and their lowest figures."""
    groups: defaultdict[tuple[str, str], list[Proof]] = defaultdict(list)
    for one in document.outcomes:
        if proof := judged_of(one):
            groups[str(run_on(one.evidence) or ""), proof.samples].append(proof)
    if not groups:
        return
    yield "| run on | verified on | cells | lowest signal-to-noise ratio | lowest agreement |"
    yield "|---|---|---:|---:|---:|"
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    for names, proofs in ordered[:_MOST_CAUSES]:
        snr = min((one.snr for one in proofs if one.snr is not None), default=None)
        agreed = min((one.agreement for one in proofs if one.agreement is not None), default=None)
        figures = "" if snr is None else f"{snr:g} dB", "" if agreed is None else f"{agreed:.1%}"
        about = (plain(brief(name, 200)) for name in names)
        yield f"| {' | '.join((*about, str(len(proofs)), *figures))} |"
    yield ""


def _failures(document: SummaryDocument) -> Iterator[str]:
    summary = document.summary
    yield f"## Failures ({counted(len(summary.failures), 'cell')})"
    yield ""
    yield "| class | cells | models | since | what | next step |"
    yield "|---|---:|---|---|---|---|"
    for group in summary.groups[:_MOST_CAUSES]:
        yield f"| {' | '.join(_columns(group, document.since_when(group)))} |"
    if len(summary.groups) > _MOST_CAUSES:
        yield ""
        yield f"... and {counted(len(summary.groups) - _MOST_CAUSES, 'more cause')}."
    yield ""


def _columns(group: FailureGroup, since: str) -> Iterator[str]:
    yield str(group.failure)
    yield str(len(group.cells)) if group.cells else counted(len(group.exports), "export")
    if len(group.cells) == 1:
        yield _id(group.cells[0])
    else:
        yield named([*map(_id, group.models)], _MOST_MODELS)
    yield plain(since)
    yield plain(group.text)
    yield plain(brief(group.hint))


def _since(since: Comparison) -> Iterator[str]:
    counts = [f"{count} {verdict}" for verdict, count in since.counts().items() if count]
    yield f"## Since {plain(since.before)}"
    yield ""
    worse = {"slower": sum(one.slower for one in since.changes)}
    worse["less accurate"] = sum(bool(one.accuracy) for one in since.changes)
    counts += [f"{count} {what}" for what, count in worse.items() if count]
    yield f"{', '.join(counts) or 'no cells'}."
    yield ""
    changes = [one for one in since.changes if one.verdict not in _NO_NEWS]
    more = f"- ... and {{}} more: `modelmill diff {since.before} {since.after}`"
    yield from limited([*map(_change, changes)], _MOST_CHANGES, more)
    if changes:
        yield ""


def _change(one: Change) -> str:
    why = "; ".join(facts(one))
    return f"- {one.verdict}: `{one.cell}`{f' ({plain(brief(why, 400))})' if why else ''}"


def _ending(document: SummaryDocument) -> str:
    code, took = document.info.exit_code, ""
    if code is None:
        return "Running, or interrupted."
    if document.seconds is not None:
        took = f" after {show_duration(document.seconds)}{_runs(document.duration)}"
    if code == Exit.OK and document.summary.groups:
        return f"Exit code 0{took}: the last run took up only a part, which succeeded."
    return f"Exit code {code}{took}: {EXITS.get(code, 'unknown')}."


def _runs(duration: Duration) -> str:
    """Say so if the last run had nothing to do: it did not build all this."""
    if duration.runs < 2:
        return ""
    idle = ", the last of which had nothing to do" if duration.idle else ""
    return f" in {duration.runs} runs{idle}"


def _id(cell: str) -> str:
    return plain(cell) if set(cell) & set("`|\r\n") else f"`{cell}`"

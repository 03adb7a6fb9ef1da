"""The report of an onboarding: its nine items, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flows.onboard.folder import CATALOG, FINDING, PROBE, RECORD, Record
from flows.onboard.goals import GOALS, Verdict
from flows.output.quantity import show_size
from flows.output.table import markdown_table, plain

_MARKS = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL"}


def markdown(record: Record) -> str:
    """The whole page."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: Record) -> Iterator[str]:
    goal = f"{record.goal} ({GOALS[record.goal]})" if record.goal in GOALS else "no goal reached"
    yield f"# {plain(record.model)}: {plain(record.task)}"
    yield ""
    yield f"**{goal}** with {record.engine}, begun {record.began}. The record is `{RECORD}`."
    for number, (title, lines) in enumerate(_items(record).items(), 1):
        yield from ("", f"## {number}. {title}", "", *lines)


def _items(record: Record) -> Mapping[str, Sequence[str]]:
    """The lines of each item by its title."""
    entry = [f"`{CATALOG}`, ready to paste:", "", f"```toml\n{record.entry.rstrip()}\n```"]
    packages = []
    for one in record.packages:
        weights = ", ".join(f"{kind} {show_size(size)}" for kind, size in one.weights.items())
        packages.append([one.target, one.folder or "none", one.tree[:16], weights])
    logs = [[one.target, one.log, one.success or "no success"] for one in record.packages]
    tiers = [
        [one.goal, _MARKS.get(one.verdict, str(one.verdict)), one.why, ", ".join(one.evidence)]
        for one in record.tiers
    ]
    goal = f"Goal: {record.goal or 'none'}"
    return {
        "Catalog entry": [*entry, *(["", record.needless] if record.needless else [])],
        "Row of an index": markdown_table([*record.row], [[*record.row.values()]]),
        "Packages": markdown_table(["target", "folder", "tree", "weights"], packages),
        "Logs": markdown_table(["target", "log", "what holds"], logs),
        "Finding": [f"`{FINDING}`, a draft." if record.finding else "None: the family is known."],
        "Coverage": [*_coverage(record)],
        "Claims": [f"Effort: {record.effort}. {goal}. Outcome: {record.outcome}."],
        "Tiers": markdown_table(["tier", "verdict", "why", "evidence"], tiers),
        "What got in the way": [f"- {plain(one)}" for one in record.method],
    }


def _coverage(record: Record) -> Iterator[str]:
    yield f"{plain(record.probe.why)} (`{PROBE}`)."
    if record.probe.findings:
        yield f"Known of the family: {plain(', '.join(record.probe.findings))}."
    if record.probe.doubt:
        yield f"Doubt: {plain(record.probe.doubt)}."

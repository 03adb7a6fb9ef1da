"""The report of an onboarding: its nine items, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from flows.cli.quantity import show_size
from flows.onboard.folder import CATALOG, FINDING, PROBE, RECORD, Package, Record
from flows.onboard.goals import GOALS, Verdict

TITLES = (
    "Catalog entry", "Row of an index", "Packages", "Logs", "Finding", "Coverage", "Claims",
    "Ladder", "What got in the way",
)  # fmt: skip
_MARKS = {Verdict.PASS: "pass", Verdict.FAIL: "**FAIL**"}


def markdown(record: Record) -> str:
    """The whole page."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: Record) -> Iterator[str]:
    goal = f"{record.goal} ({GOALS[record.goal]})" if record.goal in GOALS else "no goal reached"
    yield f"# {record.model}: {record.task}"
    yield ""
    yield f"**{goal}** with {record.engine}, begun {record.began}. The record is `{RECORD}`."
    items = (_entry, _row, _packages, _logs, _finding, _coverage, _claims, _ladder, _method)
    for number, (title, item) in enumerate(zip(TITLES, items, strict=True), 1):
        yield ""
        yield f"## {number}. {title}"
        yield ""
        yield from item(record)


def _entry(record: Record) -> Iterator[str]:
    yield f"`{CATALOG}`, ready to paste:"
    yield ""
    yield f"```toml\n{record.entry.rstrip()}\n```"
    if record.needless:
        yield ""
        yield record.needless


def _row(record: Record) -> Iterator[str]:
    yield from _table([*record.row], [[*record.row.values()]])


def _packages(record: Record) -> Iterator[str]:
    rows = [
        [one.target, one.folder or "none", one.tree[:16], _weights(one)] for one in record.packages
    ]
    yield from _table(["target", "folder", "tree", "weights"], rows)


def _weights(package: Package) -> str:
    return ", ".join(f"{kind} {show_size(size)}" for kind, size in package.weights.items())


def _logs(record: Record) -> Iterator[str]:
    rows = [[one.target, one.log, one.success or "no success"] for one in record.packages]
    yield from _table(["target", "log", "what holds"], rows)


def _finding(record: Record) -> Iterator[str]:
    yield f"`{FINDING}`, a draft." if record.finding else "None: the family is known."


def _coverage(record: Record) -> Iterator[str]:
    yield f"{record.probe.why} (`{PROBE}`)."
    if record.probe.findings:
        yield f"Known of the family: {', '.join(record.probe.findings)}."
    if record.probe.doubt:
        yield f"Doubt: {record.probe.doubt}."


def _claims(record: Record) -> Iterator[str]:
    yield f"Effort: {record.effort}. Goal: {record.goal or 'none'}. Outcome: {record.outcome}."


def _ladder(record: Record) -> Iterator[str]:
    rows = [
        [one.goal, _MARKS.get(one.verdict, str(one.verdict)), one.why, ", ".join(one.evidence)]
        for one in record.tiers
    ]
    yield from _table(["tier", "verdict", "why", "evidence"], rows)


def _method(record: Record) -> Iterator[str]:
    yield from (f"- {one}" for one in record.method)


def _table(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        cells = (text.replace("|", "\\|").replace("\n", " ") for text in row)
        yield f"| {' | '.join(cells)} |"

"""The knowledge base: findings as files, and the evidence that was added to them.

The user's folder holds `*.toml` files with the user's own findings, and `evidence.jsonl` with one
observation per line, including those about findings that come with modelmill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import MillError, PlanError, Problem
from matrix.findings import Evidence, Finding, merged, read_evidence, read_findings, shipped
from matrix.nearest import hint, quote
from matrix.reader import Entry, parse_json, read_text

EVIDENCE = "evidence.jsonl"


@dataclass(frozen=True)
class Knowledge:
    """All findings by id, with their evidence, and the lines that could not be read."""

    findings: dict[str, Finding]
    problems: tuple[Problem, ...] = ()

    def get(self, name: str) -> Finding:
        """The finding of that id. Raises `MillError` with the nearest."""
        try:
            return self.findings[name]
        except KeyError:
            near = hint(name, self.findings)
            raise MillError(f"there is no finding {quote(name)}", hint=near) from None


def _evidence(path: Path, problems: list[Problem]) -> Iterator[tuple[str, Evidence]]:
    """The lines that can be used, each with the id of its finding; what is wrong with the others is
    added to the problems."""
    try:
        text = read_text(path)
    except PlanError as error:
        raise PlanError(error.problems, "the evidence") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where, found = f"{path.name}: line {number}", list[Problem]()
        try:
            row = parse_json(line, where)
        except PlanError as error:
            problems += error.problems
            continue
        entry = Entry(row if isinstance(row, dict) else {}, where, found)
        name = entry.text("finding", required=True, empty=False)
        evidence = read_evidence(entry)
        problems += found
        if name and not found:
            yield name, evidence


def load_knowledge(folder: Path) -> Knowledge:
    """What comes with modelmill and what the folder adds, if it exists.

    Raises `PlanError` for findings with faults. Evidence that cannot be read is left out and told.
    """
    own = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    findings = read_findings([*shipped(), *own])
    problems: list[Problem] = []
    path = folder / EVIDENCE
    seen = list(_evidence(path, problems)) if path.exists() else []
    for name in dict.fromkeys(name for name, _ in seen):
        if name not in findings:
            text = f"there is no finding {quote(name)}"
            problems.append(Problem(EVIDENCE, text, hint(name, findings)))
    return Knowledge(merged(findings, seen), tuple(problems))


def read_files(paths: Sequence[Path]) -> tuple[int, int]:
    """How many findings and observations files hold. Raises `PlanError` with what is wrong."""
    lines = [path for path in paths if path.suffix == Path(EVIDENCE).suffix]
    findings = read_findings(path for path in paths if path not in lines)
    problems: list[Problem] = []
    seen = [one for path in lines for one in _evidence(path, problems)]
    if problems:
        raise PlanError(problems, "the evidence")
    return len(findings), len(seen) + sum(len(one.evidence) for one in findings.values())

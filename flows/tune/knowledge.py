"""The knowledge base: findings as files, and the evidence that was added to them.

The user's folder holds `*.toml` files with the user's own findings, and `evidence.jsonl` with one
observation per line, including those about findings that come with modelmill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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


@dataclass
class Reading:
    """Lines of evidence: those that can be used, and what is wrong with the others."""

    problems: list[Problem] = field(default_factory=list)

    def lines(self, path: Path) -> Iterator[tuple[str, Evidence]]:
        try:
            text = read_text(path)
        except PlanError as error:
            raise PlanError(error.problems, "the evidence") from None
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            found: list[Problem] = []
            try:
                row = parse_json(line, f"{path.name}: line {number}")
            except PlanError as error:
                self.problems += error.problems
                continue
            entry = Entry(
                row if isinstance(row, dict) else {}, f"{path.name}: line {number}", found
            )
            name = entry.text("finding", required=True, empty=False)
            evidence = read_evidence(entry)
            self.problems += found
            if name and not found:
                yield name, evidence


def load_knowledge(folder: Path) -> Knowledge:
    """What comes with modelmill and what the folder adds, if it exists.

    Raises `PlanError` for findings with faults. Evidence that cannot be read is left out and told.
    """
    own = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    findings = read_findings([*shipped(), *own])
    reading = Reading()
    seen: list[tuple[str, Evidence]] = []
    if (folder / EVIDENCE).exists():
        seen = list(reading.lines(folder / EVIDENCE))
    for name in dict.fromkeys(name for name, _ in seen):
        if name not in findings:
            reading.problems.append(
                Problem(EVIDENCE, f"there is no finding {quote(name)}", hint(name, findings))
            )
    return Knowledge(merged(findings, seen), tuple(reading.problems))

"""The knowledge base: findings as files, and the evidence that was appended to them.

The user's folder holds `*.toml` files with findings of their own and `evidence.jsonl`, one
observation per line. Nothing rewrites either: an observation is appended, whatever it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from machine.locks import locked
from matrix.codec import to_json
from matrix.errors import MillError, PlanError, Problem
from matrix.findings import Evidence, Finding, merged, read_evidence, read_findings, shipped
from matrix.nearest import hint, quote
from matrix.reader import Entry, parse_json, read_text

EVIDENCE = "evidence.jsonl"


@dataclass(frozen=True)
class Knowledge:
    """All findings by id, with their evidence, and what could not be read of it."""

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
        for number, line in enumerate(read_text(path).splitlines(), 1):
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


def append_evidence(folder: Path, name: str, evidence: Evidence) -> None:
    """Add one observation to a finding, at the end of the folder's file."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {key: value for key, value in to_json(evidence).items() if value not in (None, "")}
    line = json.dumps({"finding": name, **said}, ensure_ascii=False)
    with (
        locked(folder / f".{EVIDENCE}.lock"),
        (folder / EVIDENCE).open("a", encoding="utf-8") as out,
    ):
        out.write(line + "\n")

"""The folder of an onboarding: its record, every other file by its digest, and the report of its
nine items as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from flows.onboard.coverage import Effort, Probe
from flows.onboard.goals import GOALS, STUCK, Tier, Verdict
from flows.output.masking import masked_json
from flows.output.quantity import show_size
from flows.output.table import markdown_table, plain
from machine.files import hash_file, read_json, replace_file
from matrix.codec import from_json, to_json
from matrix.errors import MillError
from matrix.reader import parse_toml

RECORD = "onboarding.json"
REPORT = "report.md"
CATALOG = "catalog.toml"
FINDING = "finding.toml"
PROBE = "evidence/probe.json"
SCHEMA = 1
_MOST = 16 * 2**20
"""Bytes of a record."""
_MARKS = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL"}


class Unreadable(MillError):
    """A folder holds no record of an onboarding that can be read."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the folder."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Package:
    """What was built for a target."""

    target: str
    cell: str
    folder: str
    """In the folder of the onboarding; empty: the build failed."""
    tree: str
    log: str
    success: str
    """The line of the verification that says what holds; empty: nothing does."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Bytes by type, counted in the models: what proves a label such as fp16."""


@dataclass(frozen=True, slots=True)
class Record:
    """The nine items of a report are fields of this; `files` are all others by digest."""

    model: str
    task: str
    architecture: str
    engine: str
    targets: tuple[str, ...]
    began: str
    machine: Mapping[str, Any]
    tools: Mapping[str, str]
    entry: str
    """1: the catalog entry, ready to paste."""
    needless: str
    """1: why the entry adds nothing to what a plan says by itself; empty: it does."""
    row: Mapping[str, str]
    """2: the line for an index of models."""
    packages: tuple[Package, ...]
    """3 and 4: the built packages with their logs."""
    finding: str
    """5: the draft finding; empty: the family is known, and nothing new was seen."""
    probe: Probe
    """6: what the coverage says."""
    effort: Effort
    """7: the claimed tiers."""
    goal: str
    tiers: tuple[Tier, ...]
    """8: the tiers."""
    method: tuple[str, ...]
    """9: what got in the way, or `none`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def outcome(self) -> str:
        """What it adds: an entry, an exporter with its entry, or nothing yet."""
        if not self.goal:
            return "nothing yet"
        return "an entry" if self.effort in {Effort.ENTRY, Effort.FIRST_ENTRY} else "an exporter"


def row_of(record: Record) -> dict[str, str]:
    """The line of an onboarding for an index of models."""
    return {
        "model": record.model,
        "task": record.task,
        "architecture": record.architecture,
        "targets": " ".join(record.targets),
        "effort": str(record.effort),
        "goal": record.goal or "none",
    }


def owes_finding(effort: Effort, tiers: Iterable[Tier]) -> bool:
    """Whether something was seen that no finding tells: a new family, or a tier that did not end
    well."""
    return effort is not Effort.ENTRY or any(one.verdict in STUCK for one in tiers)


def entry_in(text: str) -> dict[str, Any]:
    """The only entry of a catalog; empty if it cannot be read or has more."""
    try:
        [entry] = parse_toml(text, CATALOG)["model"]
    except (MillError, LookupError, TypeError, ValueError):
        return {}
    return dict(entry) if isinstance(entry, dict) else {}


def put(folder: Path, name: str, value: object) -> Path:
    """Write a JSON file of the folder; the record comes last: without it, nothing is finished."""
    text = json.dumps(masked_json(to_json(value)), indent=1, ensure_ascii=False) + "\n"
    replace_file(folder / name, text.encode())
    return folder / name


def read(folder: Path) -> Record:
    """The record of a folder. Raises `Unreadable`."""
    path = folder / RECORD
    hint = "name the folder of an onboarding"
    try:
        data = read_json(path, _MOST)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    except ValueError as error:
        raise Unreadable(f"{path} is not a record: {error}", hint=hint) from None
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise Unreadable(f"{path} is of schema {data['schema']}", hint="use a newer modelmill")
    try:
        return from_json(data, Record)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: {error}", hint=hint) from None


def listed(folder: Path) -> dict[str, File]:
    """Every file of a folder but the record and the report, by digest."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in {RECORD, REPORT} and path.is_file() and not path.is_symlink():
            digest, size = hash_file(path)
            found[name] = File(digest, size)
    return found


def differences(folder: Path, record: Record) -> Iterator[str]:
    """Where the files of a folder are not those of its record."""
    for name in record.files:
        if not _inside(name):
            yield f"{name} leads out of the folder"
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink()}
    for name in sorted(there):
        yield f"{name} is a link"
    now = listed(folder)
    for name, file in record.files.items():
        if name not in now:
            yield f"{name} is missing"
        elif now[name] != file:
            yield f"{name} was changed after the record was written"
    for name in sorted(now.keys() - record.files.keys()):
        yield f"{name} does not belong to the record"


def _inside(name: str) -> bool:
    parts = PurePosixPath(name.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and ":" not in name


def markdown(record: Record) -> str:
    """The report."""
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

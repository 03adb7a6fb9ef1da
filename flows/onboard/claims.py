"""What speaks against the record of an onboarding, found without building anything.

A claim that the folder contradicts was made by hand and is rejected: a tier that passes without
evidence that shows it, a package whose files are not those of its tree, an effort that does not
follow from the probe. Where an item of the report is missing, changes are requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from flows.onboard.climb import ALIKE, SOUND, latencies, success_of, weights_of
from flows.onboard.coverage import Probe, effort_of
from flows.onboard.folder import (
    CATALOG,
    FINDING,
    PROBE,
    Package,
    Record,
    entry_in,
    owes_finding,
    row_of,
)  # fmt: skip
from flows.onboard.goals import STUCK, Tier, Verdict, breaches, reached
from flows.onboard.numbers import compared
from machine.files import read_json
from matrix.codec import from_json
from matrix.digest import FileEntry, tree_digest
from matrix.errors import PlanError
from matrix.findings import read_findings
from matrix.nearest import quote
from workers.build.stages import Rung
from workers.measure.result import Benchmark


class Answer(StrEnum):
    """How a review ends, the best first."""

    APPROVE = "approve"
    REQUEST_CHANGES = "request changes"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Objection:
    """An objection to the folder, and its consequence."""

    answer: Answer
    text: str


def objections(folder: Path, record: Record) -> Iterator[Objection]:
    """Everything that speaks against the record by itself and against its evidence."""
    for text in (*_overclaims(record), *_unshown(folder, record)):
        yield Objection(Answer.REJECT, text)
    for text in _missing(folder, record):
        yield Objection(Answer.REQUEST_CHANGES, text)


def _overclaims(record: Record) -> Iterator[str]:
    """Where the record contradicts itself."""
    yield from breaches(record.tiers)
    if record.goal != reached(record.tiers):
        yield f"it claims the goal {record.goal or 'none'}, which its ladder denies"
    probe = record.probe
    effort = effort_of(record.engine, probe.coverage, probe.findings)
    for said, name in ((probe.effort, "its probe says"), (effort, "its coverage means")):
        if record.effort is not said:
            yield f"it claims the effort {record.effort}, {name} {said}"
    if record.row and record.row != row_of(record):
        yield "the row of its index differs from the record"
    labels = tuple(one.cell.rpartition("@")[2].partition(":")[0] for one in record.packages)
    if labels and labels != record.targets:
        yield "its packages are not those of its targets"
    if entry := entry_in(record.entry):
        yield from _of_another_entry(record, entry)


def _of_another_entry(record: Record, entry: Mapping[str, Any]) -> Iterator[str]:
    """Where the record is not about its entry."""
    if (entry.get("id"), entry.get("task", record.task)) != (record.model, record.task):
        yield f"it is the proof of {record.model}:{record.task}, its entry is of another model"
    asked = entry.get("verify")
    has_dataset = isinstance(asked, dict) and "task" in asked
    passed = {one.goal for one in record.tiers if one.verdict is Verdict.PASS}
    if "L3" in passed and not has_dataset:
        yield "L3 passes, but the entry names no dataset"


def _unshown(folder: Path, record: Record) -> Iterator[str]:
    """Where the evidence does not show what the record claims."""
    shown = _Shown(folder, record)
    try:
        probe = shown.evidence(PROBE)
        if probe is not None and from_json(probe, Probe) != record.probe:
            yield f"{PROBE} differs from the record"
        for package in record.packages:
            yield from shown.package(package)
        for tier in record.tiers:
            if tier.verdict is Verdict.PASS:
                yield from shown.tier(tier)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        yield f"its evidence cannot be read: {error}"


@dataclass(frozen=True, slots=True)
class _Shown:
    """The evidence of a folder."""

    folder: Path
    record: Record

    def evidence(self, name: str) -> Any:
        """The content of a JSON file; None if it is missing, which is objected to elsewhere."""
        path = self.folder / name
        if name not in self.record.files or path.is_symlink() or not path.is_file():
            return None
        return read_json(path)

    def rungs(self, package: Package) -> Mapping[str, Rung] | None:
        """What verification found of a package; None if that is missing."""
        told = self.evidence(build_evidence(package.target))
        if told is None:
            return None
        found = (from_json(one, Rung) for one in told["verification"])
        return {one.name: one for one in found}

    def package(self, package: Package) -> Iterator[str]:
        """Where a package is not what the record says of it."""
        if not package.folder:
            return
        place = f"packages/{package.target}"
        if package.folder != place:
            yield f"{package.target} is not in {place}"
            return
        inside = [
            FileEntry(name.removeprefix(f"{place}/"), file.size, file.sha256)
            for name, file in self.record.files.items()
            if name.startswith(f"{place}/")
        ]
        told = self.evidence(build_evidence(package.target))
        if package.tree != tree_digest(inside) or (
            told is not None and told["tree"] != package.tree
        ):
            yield f"{package.target}: its files are not those that were built"
        rungs = self.rungs(package)
        claimed = package.success, package.weights
        if (
            rungs is not None
            and (success_of(rungs.values()), weights_of(rungs.values())) != claimed
        ):
            yield f"{package.target}: its evidence says something else of its rungs or weights"

    def tier(self, tier: Tier) -> Iterator[str]:
        """What its evidence does not show of a tier that passes."""
        match tier.goal:
            case "L0":
                yield from self._rungs_hold(tier, SOUND, all_targets=True)
            case "L1":
                yield from self._measured(tier)
            case "L2":
                yield from self._rungs_hold(tier, ALIKE)
                yield from self._compared(tier)
            case "L3":
                yield from self._rungs_hold(tier, ("task",))

    def _rungs_hold(
        self, tier: Tier, names: tuple[str, ...], *, all_targets: bool = False
    ) -> Iterator[str]:
        for package in self.record.packages:
            if not package.folder:
                if all_targets:
                    yield f"{tier.goal} passes, but {package.target} was not built"
                continue
            rungs = self.rungs(package)
            for name in names:
                if rungs is not None and not (name in rungs and rungs[name].passed):
                    yield f"{tier.goal} passes, but {name} of {package.target} does not hold"

    def _compared(self, tier: Tier) -> Iterator[str]:
        for package in self.record.packages:
            if told := self.evidence(build_evidence(package.target)):
                found = compared(told["manifest"])
                if "not" in found:
                    yield f"L2 passes, but the export of {package.target} was not compared"
                elif found != tier.numbers.get("source"):
                    yield "L2 claims another comparison than its evidence"

    def _measured(self, tier: Tier) -> Iterator[str]:
        trees = {one.target: one.tree for one in self.record.packages if one.folder}
        for name, claimed in tier.numbers.items() if trees else ():
            if name not in trees:
                yield f"L1 names {quote(name)}, which is none of its packages"
                continue
            told = self.evidence(f"evidence/bench-{name}.json")
            if told is None:
                continue
            found = from_json(told, Benchmark)
            if found.emulated or found.failed or found.artifact.tree != trees[name]:
                yield f"L1 names {name}, which its evidence does not measure"
            elif latencies(found) != claimed:
                yield f"L1 claims another latency of {name} than its evidence"


def build_evidence(target: str) -> str:
    """The file that tells of the build for a target."""
    return f"evidence/build-{target}.json"


def _missing(folder: Path, record: Record) -> Iterator[str]:
    """Items of the report that are missing or say nothing."""
    stuck = [one for one in record.tiers if one.verdict in STUCK]
    for number, name, there in (
        (1, "the catalog entry", record.entry.strip()),
        (2, "the row of an index", record.row),
        (3, "the packages", record.packages),
        (4, "a line of success", any(one.success for one in record.packages)),
        (4, "the logs", all(one.log in record.files for one in record.packages)),
        (5, "a draft finding", record.finding or not owes_finding(record.effort, record.tiers)),
        (6, "the probe", record.probe.why and PROBE in record.files),
        (8, "the ladder", record.tiers),
        (9, "what got in the way, or none", any(text.strip() for text in record.method)),
        *(
            (9, f"{one.goal} is {one.verdict}", any(one.goal in text for text in record.method))
            for one in stuck
        ),
    ):
        if not there:
            yield f"item {number} is missing: {name}"
    for goal, name in _wanted(record):
        if name not in record.files:
            yield f"{goal}: its evidence {name} is not in the record"
    if not _says(folder / CATALOG, record.entry):
        yield f"{CATALOG} is not the entry of the record"
    if record.finding and not _says(folder / FINDING, record.finding):
        yield f"item 5 is missing: {FINDING}"
    elif record.finding:
        try:
            read_findings([folder / FINDING])
        except PlanError as error:
            yield from map(str, error.problems)


def _wanted(record: Record) -> Iterator[tuple[str, str]]:
    """The evidence that each tier must have."""
    for tier in record.tiers:
        names = dict.fromkeys(tier.evidence)
        if tier.verdict is Verdict.PASS:
            if tier.goal == "L1":
                names |= dict.fromkeys(f"evidence/bench-{name}.json" for name in tier.numbers)
            else:
                names |= dict.fromkeys(build_evidence(one.target) for one in record.packages)
        yield from ((tier.goal, name) for name in names)


def _says(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8", "replace") == text

"""Reviews an onboarding folder, and approves nothing that it cannot check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.cli.settings import Settings
from flows.onboard import folder as files
from flows.onboard.climb import latencies
from flows.onboard.folder import Package, Record, Unreadable, differences, read
from flows.onboard.goals import Verdict, breaches, reached
from flows.onboard.numbers import faults, latency, numbers
from flows.onboard.onboarding import CARRIED, cells_of, probed, with_level
from flows.onboard.report import markdown
from flows.packages.measured import finding
from flows.sweep.local import open_builder, verifying
from flows.sweep.planning import plan_of
from flows.sweep.recorded import typed
from machine.waits import untold
from matrix.errors import MillError, PlanError
from matrix.findings import read_findings
from matrix.model import Cell, Plan
from matrix.nearest import quote
from matrix.reader import parse_toml, read_text, tables
from workers.build.builder import Builder, Built
from workers.measure.result import this_machine
from workers.verify.subject import Subject

WITHIN = 0.2
"""How far a measurement may be from the claimed one."""
MOST = 1_000
"""Runs of that measurement, counted or not; a record may claim any number."""
MOST_SESSIONS = 20


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


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The result of a review."""

    answer: Answer
    objections: tuple[Objection, ...]
    checked: tuple[str, ...]
    """What was done again here, and held."""


@dataclass(slots=True)
class Review:
    """One folder on this machine."""

    folder: Path
    settings: Settings
    tell: Callable[[str], None] = untold
    _found: list[Objection] = field(default_factory=list)
    _checked: list[str] = field(default_factory=list)

    def go(self, today: date) -> Reviewed:
        """Read, probe again, build and measure again."""
        try:
            record = read(self.folder)
        except Unreadable as error:
            self._ask(str(error))
            return self._answered()
        self._files(record)
        self._claims(record)
        if self._answered().answer is not Answer.REJECT:
            try:
                self._again(record, today)
            except MillError as error:
                self._ask(f"it cannot be checked here: {error}")
        return self._answered()

    def _answered(self) -> Reviewed:
        order = list(Answer)
        worst = max((order.index(one.answer) for one in self._found), default=0)
        return Reviewed(order[worst], tuple(self._found), tuple(self._checked))

    def _ask(self, text: str) -> None:
        self._found.append(Objection(Answer.REQUEST_CHANGES, text))

    def _reject(self, text: str) -> None:
        self._found.append(Objection(Answer.REJECT, text))

    def _files(self, record: Record) -> None:
        """Every file by its digest, and no other file."""
        for text in differences(self.folder, record):
            (self._ask if text.endswith("is missing") else self._reject)(text)
        report = self.folder / files.REPORT
        if not report.is_file():
            self._ask(f"{files.REPORT} is missing")
        elif report.read_text("utf-8", "replace") != markdown(record):
            self._reject(f"{files.REPORT} does not match {files.RECORD}")
        self._checked.append(f"{len(record.files)} files by their digests")

    def _claims(self, record: Record) -> None:
        """What the record says of itself."""
        for text in breaches(record.tiers):
            self._reject(text)
        if record.goal != reached(record.tiers):
            self._reject(f"it claims the goal {record.goal or 'none'}, which its ladder denies")
        if record.effort is not record.probe.effort:
            self._reject(f"it claims the effort {record.effort}, its probe {record.probe.effort}")
        for text in self._missing(record):
            self._ask(text)
        evidence = ((one.goal, name) for one in record.tiers for name in one.evidence)
        for goal, name in evidence:
            if name not in record.files:
                self._ask(f"{goal}: its evidence {name} is not in the record")

    def _missing(self, record: Record) -> Iterator[str]:
        """Items of the report that say nothing."""
        for number, name, there in (
            (1, "the catalog entry", record.entry.strip()),
            (2, "the row of an index", record.row),
            (3, "the packages", record.packages),
            (4, "a line of success", any(one.success for one in record.packages)),
            (6, "the probe", record.probe.why and files.PROBE in record.files),
            (8, "the ladder", record.tiers),
            (9, "what got in the way, or none", any(text.strip() for text in record.method)),
        ):
            if not there:
                yield f"item {number} is missing: {name}"
        catalog = self.folder / files.CATALOG
        if not catalog.is_file() or catalog.read_text("utf-8", "replace") != record.entry:
            yield f"{files.CATALOG} is not the entry of the record"
        finding = self.folder / files.FINDING
        if not record.finding:
            return
        if not finding.is_file() or finding.read_text("utf-8", "replace") != record.finding:
            yield f"item 5 is missing: {files.FINDING}"
            return
        try:
            read_findings([finding])
        except PlanError as error:
            yield from map(str, error.problems)

    def _again(self, record: Record, today: date) -> None:
        """The probe, a build and a measurement, on this machine."""
        settings = self._settings(record)
        plan = plan_of(settings, str(self.folder / files.CATALOG), today)
        cells = {cell.id: cell for cell in cells_of(plan)}
        found = probed(settings, next(iter(cells.values())).model)
        if found.effort is not record.effort:
            self._reject(f"the probe says {found.effort} here: {found.why}")
        else:
            self._checked.append(f"the probe: {found.why}")
        if {one.cell for one in record.packages} != set(cells):
            self._ask("its packages are not those that its entry plans")
        built = [one for one in record.packages if one.folder]
        package = min(built, key=lambda one: (_size(record, one), one.target), default=None)
        if package is None or package.cell not in cells:
            self._ask("it has no package that could be built again")
            return
        self._build(record, plan, cells[package.cell], package, settings)
        self._measure(record, settings)

    def _settings(self, record: Record) -> Settings:
        chosen = {name: record.settings[name] for name in CARRIED if name in record.settings}
        taken, wrong = typed(chosen)
        if wrong:
            raise Unreadable(f"its settings cannot be read: {', '.join(wrong)}")
        settings = self.settings.replaced(taken, "the record")
        settings = replace(
            settings,
            iterations=min(settings.iterations, MOST),
            warmup=min(settings.warmup, MOST),
            sessions=min(settings.sessions, MOST_SESSIONS),
        )
        settings.protocol.check()
        table = parse_toml(read_text(self.folder / files.CATALOG), files.CATALOG)
        rows = list(tables(table.get("model", []), files.CATALOG, []))
        if len(rows) != 1:
            raise Unreadable(f"{files.CATALOG} has {len(rows)} entries, not one")
        return with_level(settings, rows[0][1])

    def _build(
        self, record: Record, plan: Plan, cell: Cell, package: Package, settings: Settings
    ) -> None:
        self.tell(f"building {cell.target.label} again")
        with ExitStack() as opened:
            # Not with the store of this machine, which may be the one that it was built with.
            store = opened.enter_context(TemporaryDirectory(prefix="modelmill-review-"))
            settings = replace(settings, store=store)
            builder = opened.enter_context(open_builder(plan, settings))
            verifier = opened.enter_context(verifying(settings))
            tools = builder.host.tools()
            if tools != record.tools:
                names = ", ".join(
                    f"{name} {tools.get(name)}, not {record.tools.get(name)}"
                    for name in sorted(tools.keys() | record.tools.keys())
                    if tools.get(name) != record.tools.get(name)
                )
                self._ask(f"it was built with other tools; here are {names}")
                return
            built = builder.build(cell)
            opened.callback(built.release)
            climbed = verifier.climb(Subject.of(built))
            self._compare(record, builder, cell, built)
        if built.tree != package.tree:
            trees = f"{built.tree[:16]}, not {package.tree[:16]}"
            self._reject(f"{package.target} builds other bytes here: {trees}")
        elif climbed.failed:
            self._reject(f"{package.target}: {climbed.failed[0].name} does not hold here")
        else:
            self._checked.append(f"{package.target} builds to the same bytes and is sound")

    def _compare(self, record: Record, builder: Builder, cell: Cell, built: Built) -> None:
        """The numbers of L2 again."""
        if next(one for one in record.tiers if one.goal == "L2").verdict is not Verdict.PASS:
            return
        if wrong := next(faults(numbers(builder, cell, built)), ""):
            self._reject(f"L2 does not hold here: {wrong}")
        else:
            self._checked.append("the export computes what PyTorch computes")

    def _measure(self, record: Record, settings: Settings) -> None:
        tier = next(one for one in record.tiers if one.goal == "L1")
        if tier.verdict is not Verdict.PASS:
            return
        name, claimed = min(tier.numbers.items())
        if name not in {Path(one.folder).name for one in record.packages}:
            self._ask(f"L1 names {quote(name)}, which is none of its packages")
            return
        self.tell(f"measuring {name} again")
        with finding(settings, settings.threads) as finder:
            found = latency(finder, self.folder / "packages" / name, "a review", self.tell)
        if found is None or found.failed:
            self._ask(f"{name} cannot be measured on this machine")
            return
        p50 = latencies(found)["p50"]
        if abs(p50 / _p50(claimed) - 1) > WITHIN:
            other = record.machine.get("processor")
            where = f"; it was measured on {other}" if other != this_machine().processor else ""
            self._ask(f"{name} takes {p50:.3g} ms here, not {_p50(claimed):.3g} ms{where}")
        else:
            self._checked.append(f"{name} takes {p50:.3g} ms, as claimed within {WITHIN:.0%}")


def _size(record: Record, package: Package) -> int:
    inside = (name for name in record.files if name.startswith(f"{package.folder}/"))
    return sum(record.files[name].size for name in inside)


def _p50(claimed: Any) -> float:
    """Of a tier's numbers; a claim that is not a number cannot be confirmed."""
    value = claimed.get("p50") if isinstance(claimed, dict) else None
    if isinstance(value, int | float) and 0 < value < sys.float_info.max:
        return float(value)
    return float("inf")

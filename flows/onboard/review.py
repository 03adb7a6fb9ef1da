"""Reviews an onboarding folder, and approves nothing that it cannot check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.measure.measured import finding
from flows.onboard import folder as files
from flows.onboard.claims import Answer, Objection, objections
from flows.onboard.climb import latencies, success_of, weights_of
from flows.onboard.coverage import Probe, effort_of
from flows.onboard.folder import Package, Record, Unreadable, differences, entry_in, read
from flows.onboard.goals import Verdict
from flows.onboard.numbers import compared, latency
from flows.onboard.onboarding import CARRIED, cells_of, probed, with_level
from flows.onboard.report import markdown
from flows.packages.builder import open_builder, verifying
from flows.packages.reverify import subject_of
from flows.plan.planning import plan_of
from flows.plan.recorded import typed
from flows.settings.settings import Settings
from machine.waits import untold
from matrix.errors import MillError
from matrix.model import Cell, Plan
from workers.build.builder import Builder, Built
from workers.build.claim import Claim
from workers.measure.result import this_machine
from workers.verify.verifier import Verifier

WITHIN = 0.2
"""How far a measurement may be from the claimed one."""
MOST = 1_000
"""Runs of that measurement, counted or not; a record may claim any number."""
MOST_SESSIONS = 20


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
        self._found += objections(self.folder, record)
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

    def _again(self, record: Record, today: date) -> None:
        """The probe, a build and a measurement, on this machine."""
        settings = self._settings(record)
        plan = plan_of(settings, str(self.folder / files.CATALOG), today)
        cells = {cell.id: cell for cell in cells_of(plan)}
        self._probe(record, probed(settings, next(iter(cells.values())).model))
        if {one.cell for one in record.packages} != set(cells):
            self._ask("its packages are not those that its entry plans")
        built = [one for one in record.packages if one.folder]
        package = min(built, key=lambda one: (_size(record, one), one.target), default=None)
        if package is None or package.cell not in cells:
            self._ask("it has no package that could be built again")
            return
        self._build(record, plan, cells, package, settings)
        self._measure(record, settings)

    def _probe(self, record: Record, found: Probe) -> None:
        """The coverage and the effort again; only the findings of a machine may differ."""
        if found.effort is record.effort:
            self._checked.append(f"the probe: {found.why}")
        elif effort_of(record.engine, found.coverage, record.probe.findings) is record.effort:
            here, there = (", ".join(one.findings) or "none" for one in (found, record.probe))
            self._ask(f"of the family, this machine knows the findings {here}, not {there}")
        else:
            self._reject(f"the probe says {found.effort} here: {found.why}")

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
        entry = entry_in(record.entry)
        if not entry:
            raise Unreadable(f"{files.CATALOG} has no entry, or more than one")
        return with_level(settings, entry)

    def _build(
        self,
        record: Record,
        plan: Plan,
        cells: Mapping[str, Cell],
        package: Package,
        settings: Settings,
    ) -> None:
        with ExitStack() as opened:
            # Not with the store of this machine, which may be the one that it was built with.
            store = opened.enter_context(TemporaryDirectory(prefix="modelmill-review-"))
            settings = replace(settings, store=store, cache=None)
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
            if built := self._rebuilt(package, cells[package.cell], builder):
                opened.callback(built.release)
                self._compare(record, built)
            for one in record.packages:
                if one.folder and one.cell in cells:
                    self._verify(one, cells[one.cell], settings, builder, verifier)

    def _rebuilt(self, package: Package, cell: Cell, builder: Builder) -> Built | None:
        """A package as it is built here; None if that has other bytes."""
        self.tell(f"building {package.target} again")
        built = builder.build(cell)
        if built.tree == package.tree:
            self._checked.append(f"{package.target} builds to the same bytes")
            return built
        built.release()
        trees = f"{built.tree[:16]}, not {package.tree[:16]}"
        self._reject(f"{package.target} builds other bytes here: {trees}")
        return None

    def _verify(
        self,
        package: Package,
        cell: Cell,
        settings: Settings,
        builder: Builder,
        verifier: Verifier,
    ) -> None:
        """A package of the folder against the export that was built here, by what the entry asks of
        its cell: the records in the package may say anything."""
        place = self.folder / package.folder
        try:
            subject = subject_of(settings, builder.store, place, None)
            if subject.export is None and (built := self._rebuilt(package, cell, builder)):
                built.release()  # its export stays in the store
                subject = subject_of(settings, builder.store, place, None)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._reject(f"{package.target}: its manifest cannot be read: {error}")
            return
        self.tell(f"verifying {package.target} again")
        climbed = verifier.climb(replace(subject, claim=Claim.of(cell)))
        claims = package.success.split(", ")
        claimed = [
            one for one in climbed.rungs if success_of([replace(one, passed=True)]) in claims
        ]
        failed = [one.name for one in claimed if one.passed is False]
        unjudged = [one.name for one in claimed if one.passed is None]
        if failed:
            self._reject(f"{package.target}: {failed[0]} does not hold here")
        elif weights_of(climbed.rungs) != package.weights:
            self._reject(f"{package.target} has other weights than the record says")
        elif unjudged:
            self._ask(f"{package.target}: {unjudged[0]} cannot be judged here")
        else:
            self._checked.append(f"{package.target} is sound")

    def _compare(self, record: Record, built: Built) -> None:
        """The comparison of L2, which the export stage has made again."""
        tier = next(one for one in record.tiers if one.goal == "L2")
        if tier.verdict is not Verdict.PASS:
            return
        if compared(built.manifest) != tier.numbers.get("source"):
            self._reject("L2 does not hold here: the export was compared in another way")
        else:
            self._checked.append("the export computes what its source model does")

    def _measure(self, record: Record, settings: Settings) -> None:
        tier = next(one for one in record.tiers if one.goal == "L1")
        if tier.verdict is not Verdict.PASS:
            return
        name, claimed = min(tier.numbers.items())
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

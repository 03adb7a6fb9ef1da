"""Reviews an onboarding folder: the model is onboarded again, and the two records are compared.

What comes out differently here was made by hand and is rejected, unless this machine is the reason.
Where an item of the report is missing, changes are requested.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from flows.onboard import folder as files
from flows.onboard.coverage import effort_of
from flows.onboard.entry import Wanted
from flows.onboard.folder import (
    File,
    Package,
    Record,
    Unreadable,
    differences,
    entry_in,
    markdown,
    owes_finding,
    read,
    row_of,
)  # fmt: skip
from flows.onboard.goals import STUCK, Tier, Verdict, reached
from flows.onboard.onboarding import CARRIED, Onboarding
from flows.plan.recorded import typed
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import temporary_folder
from machine.waits import untold
from matrix.digest import is_run_record
from matrix.errors import MillError, PlanError
from matrix.findings import read_findings

WITHIN = 0.2
"""How far a measurement may be from the claimed one."""
MOST = 1_000
"""Runs of that measurement, counted or not; a record may claim any number."""
MOST_SESSIONS = 20
_SAME = ("model", "task", "architecture", "engine", "targets", "needless")
"""What follows from the entry alone."""
_OF_THIS_MACHINE = {Verdict.HOST_BLOCKED, Verdict.TIMED_OUT}


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
        """Read the record, onboard again, compare."""
        try:
            record = read(self.folder)
        except Unreadable as error:
            self._ask(str(error))
            return self._answered()
        self._files(record)
        self._items(record)
        if self._answered().answer is not Answer.REJECT:
            try:
                self.compare(record, self._again(record, today))
            except MillError as error:
                self._ask(f"it cannot be checked here: {error}")
        return self._answered()

    def compare(self, record: Record, again: Record) -> None:
        """What the record says, and what came out here."""
        for name in _SAME:
            said, here = getattr(record, name), getattr(again, name)
            self._reject_if(said != here, f"it says of its {name} {_shown(said)}", _shown(here))
        if record.tools != again.tools:
            names = ", ".join(
                f"{name} {again.tools.get(name)}, not {record.tools.get(name)}"
                for name in sorted(record.tools.keys() | again.tools.keys())
                if record.tools.get(name) != again.tools.get(name)
            )
            self._ask(f"it was built with other tools; here are {names}")
            return
        self._probe(record, again)
        packages = {one.target: one for one in again.packages}
        for one in record.packages:
            if one.target in packages:
                self._package(one, packages.pop(one.target), record, again)
            else:
                self._reject(f"it has a package for {one.target}, which its entry does not plan")
        for target in packages:
            self._ask(f"item 3 is missing: the package for {target}")
        goals = [one.goal for one in record.tiers], [one.goal for one in again.tiers]
        self._reject_if(goals[0] != goals[1], f"its tiers are {_shown(goals[0])}", _shown(goals[1]))
        for tier, here in zip(record.tiers, again.tiers, strict=False):
            self._tier(tier, here, again)

    def _again(self, record: Record, today: date) -> Record:
        """The same onboarding here. Its store is a new one: that of this machine, or a cache, may
        be the one that the packages were built with."""
        entry = entry_in(record.entry)
        if not entry:
            raise Unreadable(f"{files.CATALOG} has no entry, or more than one")
        task = entry.get("task", record.task)
        wanted = Wanted(str(entry.get("id")), str(task), str(self.folder / files.CATALOG))
        place = Workspace(self.settings).large_temp
        with temporary_folder("modelmill-review-", place) as temp:
            settings = replace(self._settings(record), store=str(temp / "store"), cache=None)
            work = Onboarding(wanted, temp / "again", settings, tell=self.tell)
            return work.go(today)

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
        return settings

    def _answered(self) -> Reviewed:
        order = list(Answer)
        worst = max((order.index(one.answer) for one in self._found), default=0)
        return Reviewed(order[worst], tuple(self._found), tuple(self._checked))

    def _ask(self, text: str) -> None:
        self._found.append(Objection(Answer.REQUEST_CHANGES, text))

    def _reject(self, text: str) -> None:
        self._found.append(Objection(Answer.REJECT, text))

    def _reject_if(self, differs: bool, said: str, here: str) -> None:
        if differs:
            self._reject(f"{said}, here it is {here or 'none'}")

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

    def _items(self, record: Record) -> None:
        """Items of the report that are missing or say nothing."""
        for number, name, there in (
            (2, "the row of an index", record.row),
            (3, "the packages", record.packages),
            (4, "the logs", all(one.log in record.files for one in record.packages)),
            (5, "a draft finding", record.finding or not owes_finding(record.effort, record.tiers)),
            (9, "what got in the way, or none", any(text.strip() for text in record.method)),
            *(
                (9, f"{one.goal} is {one.verdict}", any(one.goal in text for text in record.method))
                for one in record.tiers
                if one.verdict in STUCK
            ),
        ):
            if not there:
                self._ask(f"item {number} is missing: {name}")
        for goal, name in _evidence(record):
            if name not in record.files:
                self._ask(f"{goal}: its evidence {name} is not in the record")
        if record.goal != reached(record.tiers):
            self._reject(f"it claims the goal {record.goal or 'none'}, which its tiers do not show")
        if record.row and record.row != row_of(record):
            self._reject("the row of its index differs from the record")
        if not self._says(files.CATALOG, record.entry):
            self._ask(f"{files.CATALOG} is not the entry of the record")
        if record.finding and not self._says(files.FINDING, record.finding):
            self._ask(f"item 5 is missing: {files.FINDING}")
        elif record.finding:
            try:
                read_findings([self.folder / files.FINDING])
            except PlanError as error:
                for problem in error.problems:
                    self._ask(str(problem))

    def _says(self, name: str, text: str) -> bool:
        path = self.folder / name
        return path.is_file() and path.read_text("utf-8", "replace") == text

    def _probe(self, record: Record, again: Record) -> None:
        """The coverage and the effort; only the findings of a machine may differ."""
        said, here = record.probe, again.probe
        effort = effort_of(again.engine, here.coverage, said.findings)
        if replace(said, effort=here.effort, findings=here.findings) != here:
            self._reject(f"its probe says: {said.why}; here it says: {here.why}")
        elif {record.effort, said.effort} != {effort}:
            claimed = record.effort if record.effort is not effort else said.effort
            self._reject(f"it claims the effort {claimed}, its coverage means {effort}")
        elif here.effort is not effort:
            known, claimed_ = (", ".join(one.findings) or "none" for one in (here, said))
            self._ask(f"of the family, this machine knows the findings {known}, not {claimed_}")
        else:
            self._checked.append(f"the probe: {here.why}")

    def _package(self, said: Package, here: Package, record: Record, again: Record) -> None:
        name = said.target
        if not here.folder and said.folder:
            tier = again.tiers[0]
            told = self._ask if tier.verdict in _OF_THIS_MACHINE else self._reject
            told(f"{name} has a package, here it is not built: {tier.why}")
            return
        if (said.cell, said.folder) != (here.cell, here.folder):
            where = f"{said.cell} in {said.folder or 'no folder'}"
            self._reject(f"{name} is {where}, here {here.cell} in {here.folder or 'no folder'}")
        elif said.tree != here.tree:
            trees = f"{here.tree[:16]}, not {said.tree[:16]}"
            self._reject(f"{name} builds other bytes here: {trees}")
        elif _content(record, said) != _content(again, here):
            self._reject(f"{name}: its files are not those that are built here")
        elif said.folder:
            self._checked.append(f"{name} builds to the same bytes")
            self._rungs(said, here)

    def _rungs(self, said: Package, here: Package) -> None:
        claimed, found = _words(said.success), _words(here.success)
        unjudged = [one for one in claimed if found.get(one, "") == "not run" != claimed[one]]
        wrong = [
            f"{rung} {found.get(rung, 'not known')}, not {claimed.get(rung, 'not known')}"
            for rung in {**claimed, **found}
            if rung not in unjudged and claimed.get(rung) != found.get(rung)
        ]
        if wrong:
            self._reject(f"{said.target}: here {'; '.join(wrong)}")
        elif said.weights != here.weights:
            self._reject(f"{said.target} has other weights than the record says")
        elif unjudged:
            self._ask(f"{said.target}: {unjudged[0]} cannot be judged here")
        else:
            self._checked.append(f"{said.target} is sound")

    def _tier(self, said: Tier, here: Tier, again: Record) -> None:
        passes = said.verdict is Verdict.PASS
        if said.verdict is not here.verdict:
            reject = passes and here.verdict not in _OF_THIS_MACHINE
            text = f"{said.goal} is said to {_ends(said)}, here it is {here.verdict}: {here.why}"
            (self._reject if reject else self._ask)(text)
        elif passes and said.goal == "L1":
            self._latencies(said, here, {one.target for one in again.packages})
        elif passes and said.goal == "L2":
            if said.numbers.get("source") != here.numbers.get("source"):
                self._reject("L2 does not hold here: the export was compared in another way")
            else:
                self._checked.append("the export computes what its source model does")
        elif passes and (said.why, said.numbers) != (here.why, here.numbers):
            self._ask(f"{said.goal} says {_shown(said.why)}, here {_shown(here.why)}")

    def _latencies(self, said: Tier, here: Tier, targets: set[str]) -> None:
        for name, claimed in said.numbers.items():
            if name not in targets:
                self._reject(f"L1 names {_shown(name)}, which is none of its packages")
            elif name not in here.numbers:
                self._ask(f"{name} cannot be measured on this machine")
            else:
                found, told = here.numbers[name]["p50"], _p50(claimed)
                if abs(found / told - 1) <= WITHIN:
                    text = f"{name} takes {found:.3g} ms, as claimed within {WITHIN:.0%}"
                    self._checked.append(text)
                else:
                    self._ask(f"{name} takes {found:.3g} ms here, not {told:.3g} ms")
        if not said.numbers:
            self._reject("L1 passes without a number")


def _evidence(record: Record) -> Iterator[tuple[str, str]]:
    """The evidence that each tier names or must have."""
    for tier in record.tiers:
        names = dict.fromkeys(tier.evidence)
        if tier.verdict is Verdict.PASS:
            targets = tier.numbers if tier.goal == "L1" else [one.target for one in record.packages]
            kind = "bench" if tier.goal == "L1" else "build"
            names |= dict.fromkeys(f"evidence/{kind}-{target}.json" for target in targets)
        yield from ((tier.goal, name) for name in names)


def _content(record: Record, package: Package) -> dict[str, File]:
    """The files of a package that follow from its inputs."""
    head = f"{package.folder}/"
    inside = {name.removeprefix(head): file for name, file in record.files.items()
              if name.startswith(head)}  # fmt: skip
    return {name: file for name, file in inside.items() if not is_run_record(name)}


def _words(success: str) -> Mapping[str, str]:
    """What the line of a package says of each rung."""
    parts = (part.partition(" ") for part in success.split(", ") if part)
    return {name: words for name, _, words in parts}


def _ends(tier: Tier) -> str:
    return {Verdict.PASS: "pass", Verdict.FAIL: "fail"}.get(tier.verdict, f"be {tier.verdict}")


def _shown(value: object) -> str:
    """A value of a record in a line, whatever it holds."""
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"'{text[:100]}'" if text else "nothing"


def _p50(claimed: Any) -> float:
    """Of a tier's numbers; a claim that is not a number cannot be confirmed."""
    value = claimed.get("p50") if isinstance(claimed, dict) else None
    if isinstance(value, int | float) and 0 < value < sys.float_info.max:
        return float(value)
    return float("inf")

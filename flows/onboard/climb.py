"""Climbs the ladder of goals with the ordinary engine, rungs and runtimes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.cli.settings import Settings
from flows.onboard.folder import FINDING, REPORT, Package, put
from flows.onboard.goals import Tier, Verdict
from flows.onboard.numbers import faults, latency, numbers, worst
from flows.packages.measured import Finder
from machine.waits import untold
from matrix.errors import MillError
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build.builder import Builder, Built
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.measure.result import Benchmark
from workers.verify.subject import Subject
from workers.verify.verifier import Climbed, Verifier

SOUND = ("integrity", "policy", "loads", "shapes")
"""The rungs that L0 asks of every package."""
_HOST = {FailureClass.DISK, FailureClass.NETWORK, FailureClass.AUTH, FailureClass.MEMORY}
_WORDS = {True: "holds", False: "fails", None: "not run"}


@dataclass(slots=True)
class Cellwork:
    """What came of one target."""

    cell: Cell
    package: Package
    climbed: Climbed | None = None
    error: BuildFailed | None = None

    def rung(self, name: str) -> tuple[bool | None, str]:
        """Whether a rung of verification holds, and its words."""
        if self.climbed is None:
            return None, "it was not built"
        found = next((one for one in self.climbed.rungs if one.name == name), None)
        return (None, "it was not asked for") if found is None else (found.passed, found.detail)


@dataclass(slots=True)
class Climb:
    """The work of one onboarding in its folder."""

    folder: Path
    settings: Settings
    cells: list[Cell]
    builder: Builder
    verifier: Verifier
    tell: Callable[[str], None] = untold
    done: dict[str, Cellwork] = field(default_factory=dict)
    _outputs: Any = None
    """Distances of the export from PyTorch; a `BuildFailed` if they could not be measured."""

    def steps(self, finder: Callable[[], Finder]) -> Iterator[tuple[str, Callable[[], Tier]]]:
        """The tiers in order; `finder`: of what is measured, opened only if something is."""
        yield "L0", self.build
        yield "L1", lambda: self.measure(finder())
        yield "L2", self.compare
        yield "L3", self.task

    def build(self) -> Tier:
        """L0: every target builds, and its package is sound."""
        for cell in self.cells:
            self.tell(f"building {cell.target.label}")
            work = self._built(cell)
            self.done[work.package.target] = work
        evidence = [f"evidence/build-{name}.json" for name in self.done]
        for name, one in self.done.items():
            if one.error:
                return Tier("L0", _verdict(one.error), f"{name}: {one.error}", tuple(evidence))
        for name, one in self.done.items():
            for rung in SOUND:
                passed, words = one.rung(rung)
                if not passed:
                    verdict = Verdict.FAIL if passed is False else Verdict.HOST_BLOCKED
                    return Tier("L0", verdict, f"{name}: {rung}: {words}", tuple(evidence))
        built = f"{len(self.done)} of {len(self.cells)} targets build"
        return Tier("L0", Verdict.PASS, f"{built}; {', '.join(SOUND)} hold", tuple(evidence))

    def measure(self, finder: Finder) -> Tier:
        """L1: its latency wherever this machine has a device; an emulator's time does not count."""
        numbers: dict[str, Any] = {}
        evidence, lacking = [], []
        for name, one in self.done.items():
            if not one.package.folder:
                continue
            self.tell(f"measuring {name}")
            try:
                place = self.folder / one.package.folder
                found = latency(finder, place, "an onboarding", self.tell)
            except MillError as error:
                lacking.append(f"{name}: {error.message}")
                continue
            file = f"evidence/bench-{name}.json"
            put(self.folder, file, found)
            evidence.append(file)
            if faulty := next((graph.fault for graph in found.graphs if graph.fault), None):
                text = f"{name}: {faulty.message}"
                return Tier("L1", Verdict.FAIL, text, tuple(evidence), numbers)
            if found.emulated:
                lacking.append(f"{name}: only its emulator is here")
                continue
            numbers[name] = _latency(found)
        if not numbers:
            text = "; ".join(lacking) or "there is no package to measure"
            return Tier("L1", Verdict.HOST_BLOCKED, text, tuple(evidence))
        told = ", ".join(f"{name} p50 {one['p50']:.3g} ms" for name, one in numbers.items())
        rest = f"; not here: {'; '.join(lacking)}" if lacking else ""
        return Tier("L1", Verdict.PASS, f"{told}{rest}", tuple(evidence), numbers)

    def compare(self) -> Tier:
        """L2: the export against PyTorch, and every package against the export."""
        found = self._outputs
        if found is None:
            return Tier("L2", Verdict.HOST_BLOCKED, "there is no package to compare")
        if isinstance(found, BuildFailed):
            return Tier("L2", _verdict(found), str(found))
        file = "evidence/numbers.json"
        put(self.folder, file, found)
        evidence = (file, *(f"evidence/build-{name}.json" for name in self.done))
        told: dict[str, Any] = {"pytorch": worst(found)}
        problems = [*faults(found)]
        holds, unjudged = [], []
        for name, one in self.done.items():
            passed, words = one.rung("parity")
            told[name] = words
            if passed:
                holds.append(name)
            elif passed is False:
                problems.append(f"{name}: {words}")
            elif one.package.folder:
                unjudged.append(f"{name}: {words}")
        if problems:
            return Tier("L2", Verdict.FAIL, "; ".join(problems[:3]), evidence, told)
        if unjudged or not holds:
            text = "; ".join(unjudged[:3]) or "there is no package to compare"
            return Tier("L2", Verdict.HOST_BLOCKED, text, evidence, told)
        most, cosine = told["pytorch"]["max_abs"], told["pytorch"]["cosine"]
        text = f"the export differs from PyTorch by at most {most:.2g}, cosine {cosine:.6f}"
        text += f"; parity holds for {', '.join(holds)}"
        return Tier("L2", Verdict.PASS, text, evidence, told)

    def task(self) -> Tier:
        """L3: the metric of the entry's dataset."""
        if self.settings.verify != "task":
            return Tier("L3", Verdict.NOT_RUN, "no dataset is given (--dataset)")
        found = {name: one.rung("task") for name, one in self.done.items()}
        evidence = tuple(f"evidence/build-{name}.json" for name in self.done)
        for name, (passed, words) in found.items():
            if passed is False:
                return Tier("L3", Verdict.FAIL, f"{name}: {words}", evidence)
        shown = {name: words for name, (passed, words) in found.items() if passed}
        if len(shown) < len(found) or not shown:
            words = next((words for passed, words in found.values() if not passed), "no package")
            return Tier("L3", Verdict.NOT_RUN, words)
        return Tier("L3", Verdict.PASS, "; ".join(sorted(set(shown.values()))), evidence, shown)

    def _built(self, cell: Cell) -> Cellwork:
        name = cell.id.rpartition("@")[2].replace(":", "-")
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        package = Package(name, cell.id, "", "", f"logs/{name}.log", "")
        try:
            built = self.builder.build(cell, Watching(log=log))
            try:
                return self._examined(cell, built, package)
            finally:
                built.release()
        except BuildFailed as error:
            told = {"cell": cell.id, "error": str(error)}
            put(self.folder, f"evidence/build-{name}.json", told)
            return Cellwork(cell, package, error=error)

    def _examined(self, cell: Cell, built: Built, package: Package) -> Cellwork:
        climbed = self.verifier.climb(Subject.of(built))
        if self._outputs is None:
            try:
                self._outputs = numbers(self.builder, cell, built)
            except BuildFailed as error:
                self._outputs = error
        names = ("stage", "component", "key", "reused", "seconds")
        record = {
            "cell": cell.id,
            "tree": built.tree,
            "stages": [{name: getattr(one, name) for name in names} for one in built.stages],
            "manifest": dict(built.manifest),
            **climbed.to_json(),
        }
        put(self.folder, f"evidence/build-{package.target}.json", record)
        place, weights = f"packages/{package.target}", _weights(climbed)
        built.move_to(self.folder / place)
        said = ", ".join(f"{one.name} {_WORDS[one.passed]}" for one in climbed.rungs)
        made = replace(package, folder=place, tree=built.tree, success=said, weights=weights)
        return Cellwork(cell, made, climbed)


def clear(folder: Path) -> None:
    """Remove the files of an earlier onboarding from its folder."""
    for name in ("packages", "evidence", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (FINDING, REPORT):
        (folder / name).unlink(missing_ok=True)


def _verdict(error: BuildFailed) -> Verdict:
    if error.failure is FailureClass.TIMEOUT:
        return Verdict.TIMED_OUT
    if error.failure in _HOST:
        return Verdict.HOST_BLOCKED
    return Verdict.TOOL_BLOCKED if error.failure is FailureClass.UNSUPPORTED else Verdict.FAIL


def _weights(climbed: Climbed) -> dict[str, int]:
    """Bytes of weights by type: what proves a label such as fp16."""
    told: Counter[str] = Counter()
    for one in climbed.rungs:
        if one.name == "policy":
            for model in one.evidence.get("models", {}).values():
                told.update(model.get("bytes", {}))
    return dict(told)


def _latency(found: Benchmark) -> dict[str, float]:
    """Of a composite, the sum of its graphs."""
    graphs, names = [one.latency for one in found.graphs if one.latency], ("p50", "p90", "mean")
    return {name: round(sum(getattr(one, name) for one in graphs), 6) for name in names}

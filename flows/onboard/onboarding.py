"""One onboarding, from the user's arguments to a finished folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from flows.measure.subjects import Finder, finding
from flows.onboard import folder as files
from flows.onboard.climb import Climb, clear
from flows.onboard.coverage import Probe, lacking_lines, probe
from flows.onboard.entry import Wanted, bare, entry_of
from flows.onboard.folder import Package, Record, entry_in, listed, markdown, owes_finding, row_of
from flows.onboard.goals import STUCK, Tier, climb, reached
from flows.output.masking import masked, masked_json
from flows.packages.builder import open_builder, verifying
from flows.plan.planning import plan_of
from flows.settings.settings import SELECTION, Settings
from flows.settings.workspace import Workspace
from flows.tune.knowledge import load_knowledge
from machine.files import remove_tree, replace_file, unlink
from machine.locks import locked_now
from machine.user_errors import user_errors
from machine.waits import untold
from matrix.codec import from_json, to_json
from matrix.errors import MillError, UsageError
from matrix.model import PRIORITIES, Cell, Model, Plan
from matrix.registry import is_refused
from matrix.slugs import slug
from matrix.toml import as_toml
from workers.measure.result import this_machine

CARRIED = ("engine", "opset", "precision", "target", "ep", "device", "iterations", "warmup",
           "sessions", "threads")  # fmt: skip
"""Settings that decide what is built and measured; a review takes them from the record."""


@dataclass(slots=True)
class Onboarding:
    """What is asked for."""

    wanted: Wanted
    folder: Path
    settings: Settings
    notes: tuple[str, ...] = ()
    """What got in the user's way."""
    tell: Callable[[str], None] = untold

    def go(self, today: date) -> Record:
        """Climb, and write the folder. Raises `UsageError` before anything is built."""
        with held(self.settings, self.folder):
            return self._written(today)

    def _written(self, today: date) -> Record:
        began = datetime.now(UTC).isoformat(timespec="seconds")
        table = entry_of(self.wanted, self.settings.cwd, self.folder)
        self._check_folder(table)
        settings = with_level(self.settings, table)
        new = not self.folder.exists()
        try:
            if new:
                with user_errors(f"--dest {self.folder} cannot be used"):
                    self._mark(table)
            plan = self._plan(table, settings, today)
        except MillError:
            if new:
                remove_tree(self.folder)  # nothing was begun
            raise
        cells = cells_of(plan)
        self._mark(table)
        clear(self.folder)
        replace_file(self.folder / files.CATALOG, masked(as_toml("model", table)).encode())
        model = cells[0].model
        found = probed(settings, model)
        files.put(self.folder, files.PROBE, found)
        tiers, work = self._climb(plan, cells, settings)
        packages = tuple(one.package for one in work.done.values())
        stuck = (f"{one.goal} {one.verdict}: {one.why}" for one in tiers if one.verdict in STUCK)
        method = (*self.notes, *map(str, plan.notices), *stuck, *lacking_lines(found))
        text = draft(model, found, tiers, packages, today)
        if text:
            replace_file(self.folder / files.FINDING, masked(text).encode())
        record = Record(
            model=model.id,
            task=model.task,
            architecture=found.coverage.architecture,
            engine=plan.engine,
            targets=tuple(cell.target.label for cell in cells),
            began=began,
            machine=asdict(this_machine()),
            tools=work.builder.host.tools(),
            entry=as_toml("model", table),
            needless=self._needless(table, plan, settings, today),
            row={},
            packages=packages,
            finding=text,
            probe=found,
            effort=found.effort,
            goal=reached(tiers),
            tiers=tiers,
            method=method or ("none",),
            settings={name: to_json(getattr(settings, name)) for name in CARRIED},
            files=listed(self.folder),
        )
        record = replace(record, row=row_of(record))
        record = from_json(masked_json(to_json(record)), Record)  # as the file has it
        replace_file(self.folder / files.REPORT, markdown(record).encode())
        files.put(self.folder, files.RECORD, record)
        return record

    def _mark(self, table: dict[str, Any]) -> None:
        """From now on the folder is known as one of an onboarding, also if this one is killed."""
        files.put(self.folder, files.PROBE, {"of": table["id"]})

    def _plan(self, table: dict[str, Any], settings: Settings, today: date) -> Plan:
        """What is planned for an entry, whose paths start in the folder."""
        draft = self.folder / f".{files.CATALOG}"
        replace_file(draft, as_toml("model", table).encode())
        try:
            return plan_of(settings, str(draft), today)
        finally:
            unlink(draft)

    def _check_folder(self, table: dict[str, Any]) -> None:
        """Never take over a folder that holds something else, be it the proof of another model."""
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"--dest {self.folder} is a file", hint="name a folder")
        if not self.folder.is_dir() or not any(self.folder.iterdir()):
            return
        if not any((self.folder / name).exists() for name in (files.RECORD, files.PROBE)):
            raise UsageError(f"--dest {self.folder} holds other files", hint="name a new folder")
        try:
            there = files.read(self.folder)
        except files.Unreadable:
            return
        task, folder = table.get("task") or there.task, entry_in(there.entry).get("folder")
        if (there.model, there.task, folder) != (table["id"], task, table.get("folder")):
            text = f"--dest {self.folder} has the proof of {there.model}:{there.task}"
            text += f" in {folder}" if folder else ""
            raise UsageError(text, hint="name a new folder")

    def _climb(
        self, plan: Plan, cells: list[Cell], settings: Settings
    ) -> tuple[tuple[Tier, ...], Climb]:
        with ExitStack() as opened:
            builder = opened.enter_context(open_builder(plan, settings))
            verifier = opened.enter_context(verifying(settings))
            work = Climb(self.folder, settings, cells, builder, verifier, self.tell)

            def finder() -> Finder:
                return opened.enter_context(finding(settings, settings.threads))

            return climb(work.steps(finder)), work

    def _needless(self, table: dict[str, Any], plan: Plan, settings: Settings, today: date) -> str:
        """Overrides that do not change how any cell is built."""
        plain = bare(table)
        if plain is None:
            return ""
        without = self._plan(plain, settings, today)
        extra = sorted(table.keys() - plain.keys())
        if extra == ["verify"] or _policies(plan) != _policies(without):
            return ""
        names = ", ".join(f"`{one}`" for one in extra)
        return f"{names} can be left out: every cell is planned in the same way without."


def held(settings: Settings, folder: Path) -> AbstractContextManager[None]:
    """Nobody else onboards into this folder."""
    workspace = Workspace(settings)
    workspace.prepare()
    digest = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogatepass")).hexdigest()
    text = f"another process is writing the proof in {folder}"
    busy = UsageError(text, hint="let it finish, or give another --dest")
    return locked_now(workspace.home / "onboardings" / f"{digest[:16]}.lock", busy)


def cells_of(plan: Plan) -> list[Cell]:
    """The cells to build. What coverage refuses for every target is tried: only a build decides."""
    cells = [cell for cell in plan.cells() if not cell.skip]
    for cell in plan.cells() if not cells else ():
        if is_refused(cell.skip):
            model = replace(cell.model, overrides=replace(cell.model.overrides, skip=None))
            cells.append(replace(cell, skip=None, model=model))
    if not cells:
        raise UsageError("every cell of the entry is skipped", hint="see its `skip`")
    return cells


def with_level(settings: Settings, table: dict[str, Any]) -> Settings:
    """Verified up to the task where the entry has a dataset for it; nothing that was set for sweeps
    decides what is built."""
    asked = table.get("verify")
    level = "task" if isinstance(asked, dict) and "task" in asked else "parity"
    taken: dict[str, Any] = dict.fromkeys(set(SELECTION) - {"target", "ep", "device"}, ())
    taken |= {"priority": PRIORITIES, "verify": level, "no_publish": True, "bench": False}
    taken |= {"champions": None, "compile": (), "self_contained": False}
    return replace(settings, **taken)


def probed(settings: Settings, model: Model) -> Probe:
    """The coverage of a model on this installation."""
    known = load_knowledge(Workspace(settings).knowledge).findings.values()
    return probe(settings.engine, model, known)


def draft(
    model: Model, found: Probe, tiers: tuple[Tier, ...], packages: Iterable[Package], today: date
) -> str:
    """What was seen of a family, as a draft of a finding in TOML; empty: the family is known, and
    nothing failed or was blocked."""
    if not owes_finding(found.effort, tiers):
        return ""
    odd = [one for one in tiers if one.verdict in STUCK]
    title = f"{model.id} is onboarded for {model.task}"
    if odd:
        title = f"{model.id} stops at {odd[0].goal} for {model.task}: {odd[0].verdict}"
    seen = {"supports": True, "model": model.id, "architecture": found.coverage.architecture}
    source = {"source": "an onboarding", "at": today.isoformat()}
    goal = reached(tiers)
    table = {
        "id": slug(f"{found.coverage.architecture}-{_ascii(model.id)}-{model.task}"),
        "kind": "family",
        "title": title,
        "observation": "; ".join(f"{one.goal} {one.verdict}: {one.why}" for one in tiers),
        "status": "draft",
        "confidence": "low",
        "falsified_by": "an onboarding of the same model that ends otherwise",
        "effort": str(found.effort),
        **({"goal": goal} if goal else {}),
        "updated": today.isoformat(),
        "scope": {"architectures": [found.coverage.architecture], "models": [model.id]},
        "evidence": [
            {**seen, "target": one.target, **({"digest": one.tree} if one.tree else {}), **source}
            for one in packages
        ],
    }
    return as_toml("finding", table)


def _ascii(name: str) -> str:
    """A name that stays its own when it is made a slug."""
    return name if name.isascii() else f"{name}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _policies(plan: Plan) -> list[tuple[str, Any]]:
    return [(cell.id, to_json(cell.policy)) for cell in plan.cells()]

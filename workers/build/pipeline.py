"""Running the stages of a cell: look up, lock, look up again, run, store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from machine.disk import free, is_full, reason, says_full
from matrix.status import FailureClass
from workers.build.graph import StageTask
from workers.build.known_failures import KnownFailures
from workers.build.patience import Told
from workers.build.room import Room
from workers.build.stages import Observer, StageRun
from workers.engine import SOURCE, Request, StageJob
from workers.errors import BuildFailed, failure_of
from workers.host.client import EngineHost
from workers.store import Action, Store
from workers.store.blobs import NotAFile

MAKE_ROOM = "free some space or set --disk-budget"
LEAST_FREE = 4 * 1024 * 1024
"""A stage that fails with less than this left on the volume has most likely failed of that."""


def os_failure(stage: str, error: OSError) -> BuildFailed:
    """What the system refused us while we handled files, as the failure of one cell."""
    where = f" ({error.filename})" if error.filename else ""
    if is_full(error):
        return BuildFailed(FailureClass.DISK, stage, f"the disk is full{where}", hint=MAKE_ROOM)
    if isinstance(error, NotAFile):
        return BuildFailed(failure_of(stage), stage, str(error), hint="a fault of the engine")
    text = f"{reason(error)}{where}"
    return BuildFailed(FailureClass.DISK, stage, text, hint="can the store be read and written?")


@dataclass(frozen=True, slots=True)
class Context:
    """One build, however often it is begun anew: who watches it, what stops it, what it has."""

    observer: Observer
    room: Room
    cancel: threading.Event | None = None
    log: Path | None = None
    limit: float = float("inf")
    """Seconds after which a wait for others is given up if nothing of theirs moves."""
    made: dict[str, StageRun] = field(default_factory=dict)
    """What it has run so far, by key: found in the store the next time, but not reused."""


def noted(observer: Observer, cell_id: str, log: Path | None) -> Told:
    """Tells who watches a cell, and its log, what the cell waits for."""

    def tell(text: str) -> None:
        observer.progress(cell_id, text)
        if log is not None:
            with suppress(OSError):
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a", encoding="utf-8") as stream:
                    stream.write(f"{text}\n")

    return tell


def _anything(_task: StageTask) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(slots=True)
class Runner:
    """Resolves the stage runs of one build."""

    store: Store
    host: EngineHost
    cell_id: str
    request: Request
    context: Context
    timeout: float
    disk: Callable[[StageTask], AbstractContextManager[object]] = _anything
    """Called for every stage that is not in the store: held until it is."""
    memory: Callable[[StageTask], AbstractContextManager[object]] = _anything
    """Called for every stage that runs: held while it does."""
    known: KnownFailures = field(default_factory=KnownFailures)
    runs: list[StageRun] = field(default_factory=list)

    def resolve(self, task: StageTask) -> Action:
        """The action of a run, from the store or made now."""
        key, began = task.key.key, time.monotonic()
        action = self.store.lookup(key)
        ran = False
        if action is None:
            self.known.check(key)
            told = noted(self.context.observer, self.cell_id, self.context.log)
            lock = self.store.lock(key, self.context.cancel, limit=self.context.limit, told=told)
            with self.disk(task), lock:
                action = self.store.lookup(key)
                if action is None:
                    action, ran = self._run_noted(task), True
        self._tell(task, action, ran, time.monotonic() - began)
        return action

    def _tell(self, task: StageTask, action: Action, ran: bool, seconds: float) -> None:
        key, made = task.key.key, self.context.made
        run = made.get(key)
        if run is None or ran:
            run = StageRun(
                stage=task.spec.name,
                component=task.component,
                key=key,
                parts=task.key.parts,
                reused=not ran,
                seconds=seconds,
                bytes=action.size,
                peak_memory=action.peak_memory,
            )
            self.context.observer.stage_finished(self.cell_id, run)
            if ran:
                made[key] = run
        self.runs.append(run)

    def _run_noted(self, task: StageTask) -> Action:
        try:
            return self._run(task)
        except BuildFailed as error:
            self.known.note(task.key.key, self.cell_id, error)
            raise

    def _run(self, task: StageTask) -> Action:
        stage, borrow = task.spec.name, self.store.scratch.borrow
        self.context.observer.stage_started(self.cell_id, stage, task.component)
        try:
            with ExitStack() as stack:
                return self._run_in(task, lambda name: stack.enter_context(borrow(name)))
        except OSError as error:
            raise os_failure(stage, error) from error
        except BuildFailed as error:
            if error.failure is FailureClass.DISK or not self._looks_full(error):
                raise
            raise BuildFailed(
                FailureClass.DISK,
                stage,
                f"the disk is full ({error.reason})",
                hint=MAKE_ROOM,
                exit_code=error.process_exit,
                log_tail=error.log_tail,
            ) from error

    def _run_in(self, task: StageTask, borrow: Callable[[str], Path]) -> Action:
        out = borrow(task.spec.name)
        inputs = {}
        for name, files in task.inputs.items():
            inputs[name] = borrow(f"in-{name}")
            self.store.materialize(files, inputs[name], alone=True)
        source = self.request.model["source"]
        if SOURCE in task.spec.inputs and source["kind"] == "folder":
            inputs[SOURCE] = Path(source["ref"])
        job = StageJob(
            stage=task.spec.name,
            params=task.spec.params,
            request=self.request,
            inputs=inputs,
            out=out,
            component=task.component,
            progress=lambda text: self.context.observer.progress(self.cell_id, text),
        )
        with self.memory(task):
            report = self.host.run(
                job, timeout=self.timeout, log=self.context.log, cancel=self.context.cancel
            )
        action = Action(
            key=task.key.key,
            parts=task.key.parts,
            files=(),
            facts=report.facts,
            info=report.info,
            seconds=float(report.info["seconds"]),
            peak_memory=int(report.info["peak_memory"]),
            subject=f"{self.request.model['id']} {task.spec.name} {task.component}".strip(),
        )
        return self.store.ingest(out, action)

    def _looks_full(self, error: BuildFailed) -> bool:
        """Native code reports a full disk in its own words, or by crashing on it."""
        if error.failure in {FailureClass.TIMEOUT, FailureClass.MEMORY}:
            return False
        if says_full(f"{error.reason}\n{error.log_tail}"):
            return True
        return free(self.store.root) < LEAST_FREE

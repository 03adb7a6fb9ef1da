"""The owner's side of an engine host: started when first needed, restarted after a crash."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine.files import remove_tree, unlink
from machine.scratch import Scratch, sweep_dead
from matrix.status import FailureClass
from workers.engine import BuildPlan, Request, StageJob, StageReport, from_json, to_json
from workers.errors import BuildFailed, failure_of
from workers.host.process import (
    NEEDED_CREDENTIAL,
    EngineSpec,
    HostProcess,
    Message,
    child_environment,
)
from workers.host.watch import UNWATCHED, Call, HostLimits, Watching, log_size

__all__ = ["EngineHost", "EngineSpec", "Host", "HostLimits", "Reply"]

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with its cost."""

    result: Any
    peak_memory: int
    seconds: float


class Host:
    """A warm child that serves one object; one request at a time, from any thread."""

    def __init__(
        self, spec: EngineSpec, *, limits: HostLimits | None = None, log_dir: Path
    ) -> None:
        self.spec = spec
        self.limits = limits or HostLimits()
        self._log_dir = log_dir
        self._scratch: Scratch | None = None
        self._process: HostProcess | None = None
        self._cwd: Path | None = None
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._own_log = log_dir / f"host-{spec.name}-{os.getpid()}-{next(_NUMBERS)}.log"
        """What is printed outside of any cell's request."""
        self.starts = 0
        """How often the child was started."""

    def call(self, op: str, args: Any, watching: Watching = UNWATCHED, *, stage: str = "") -> Reply:
        """Send one request and watch over it. Raises `BuildFailed` or `Cancelled`."""
        with self._lock:
            log, timeout = watching.log or self._own_log, watching.timeout
            call = Call(
                stage=stage or op,
                log=log,
                log_start=log_size(log),
                timeout=self.limits.timeout if timeout is None else timeout,
                limits=self.limits,
                watching=watching,
                secret=os.environ.get(NEEDED_CREDENTIAL),
            )
            for one in {self._own_log, log}:
                _check_log(one, call)
            request = {"id": next(self._ids), "op": op, "args": args}
            request["log"] = str(log.absolute()) if watching.log else None
            began = time.monotonic()
            try:
                reply = self._exchange(request, call)
            finally:
                if self._process is not None and not self._process.alive:
                    self._drop()
                _mask_log(call)
            if reply["ok"]:
                return Reply(reply["result"], call.peak, time.monotonic() - began)
            error = reply["error"]
            failure, text = failure_of(error["failure"], call.stage), error["message"]
            more = {"hint": error["hint"], "retryable": error["retryable"]}
            raise call.failed(failure, text or error["type"], **more)

    def environment(self) -> dict[str, Any]:
        """The interpreter, the system and the distributions that the child runs with."""
        return dict(self.call("environment", {}, Watching(self.limits.plan_timeout)).result)

    def close(self) -> None:
        """End the child; a request in flight ends as `Cancelled`. The next call starts anew."""
        process = self._process
        if process is not None:
            process.end()
        with self._lock:
            self._drop()
            if self._scratch is not None:
                self._scratch.close()
                self._scratch = None
            if log_size(self._own_log) == 0:
                with contextlib.suppress(OSError):
                    unlink(self._own_log)

    def _exchange(self, request: Message, call: Call) -> Message:
        for _attempt in range(2):
            process = self._started(call)
            # A child that died while idle has not seen the request: a new one gets it.
            if process.send(request):
                break
            self._drop()
        else:
            raise call.failed(FailureClass.CRASH, "the engine host dies as soon as it is started")
        number = request["id"]
        return call.wait(process, lambda told: told.get("id") == number and "ok" in told)

    def _started(self, call: Call) -> HostProcess:
        if self._process is not None and self._process.alive:
            return self._process
        self._drop()
        own_log = self._own_log
        call = replace(
            call, log=own_log, log_start=log_size(own_log), timeout=self.limits.start_timeout
        )
        if self._scratch is None:
            sweep_dead(self._log_dir / "scratch")
            self._scratch = Scratch(self._log_dir / "scratch")
        self._cwd = self._scratch.new_folder(f"host-{self.spec.name}")
        temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self._cwd.absolute()))
        env = child_environment(
            os.environ,
            {**temporary, **self.spec.env},
            foreign=self.spec.python is not None,
            threads=self.limits.threads,
        )
        try:
            self._process = HostProcess(self.spec.command(), env, self._cwd, own_log)
        except OSError as error:
            text = f"the interpreter {self.spec.python or sys.executable} cannot be started"
            raise call.failed(FailureClass.UNSUPPORTED, f"{text}: {error.strerror}") from error
        self.starts += 1
        ready = call.wait(self._process, lambda told: "ready" in told)
        if not ready["ready"]:
            self._drop()
            hint = f"is it installed for {self.spec.python or sys.executable}?"
            text = f"engine {self.spec.name} cannot be loaded: {ready['error']['message']}"
            raise call.failed(FailureClass.UNSUPPORTED, text, hint=hint)
        return self._process

    def _drop(self) -> None:
        if self._process is not None:
            self._process.end()
        if self._cwd is not None:
            remove_tree(self._cwd)
        self._process = self._cwd = None


class EngineHost(Host):
    """An engine in its host: the operations of `workers.engine.Engine`, from outside."""

    def tools(self) -> dict[str, str]:
        """Versions of the engine's tools."""
        return dict(self.call("tools", {}, Watching(self.limits.plan_timeout)).result)

    def plan(self, request: Request, watching: Watching = UNWATCHED) -> BuildPlan:
        """The stages of a cell, within the limit of a plan."""
        limited = replace(watching, timeout=self.limits.plan_timeout)
        return from_json(self.call("plan", to_json(request), limited).result, BuildPlan)

    def run(self, job: StageJob, watching: Watching = UNWATCHED) -> StageReport:
        """Run one stage; what it took is added to the report's `info`."""
        reply = self.call("run", to_json(job), watching, stage=job.stage)
        report = from_json(reply.result, StageReport)
        info = {"peak_memory": reply.peak_memory, "seconds": reply.seconds}
        return StageReport(report.facts, {**report.info, **info})


def _check_log(log: Path, call: Call) -> None:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()
    except OSError as error:
        text, hint = f"the log {log} cannot be written: {error.strerror}", "choose another folder"
        raise BuildFailed(FailureClass.DISK, call.stage, text, hint=hint) from error


def _mask_log(call: Call) -> None:
    """Mask the token in the log: a tool may have printed it."""
    if not call.secret or len(call.secret) < 8:
        return
    try:
        with call.log.open("r+b") as stream:
            stream.seek(call.log_start)
            written = stream.read()
            masked = written.replace(call.secret.encode(), b"*" * len(call.secret))
            if masked != written:
                stream.seek(call.log_start)
                stream.write(masked)
    except OSError as error:
        text = f"the log {call.log.name} cannot be read back: {error}"
        raise BuildFailed(FailureClass.DISK, call.stage, text) from error

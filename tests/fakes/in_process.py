"""An engine host without a process, for tests of what surrounds it."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakes.engine import fake_spec, install
from workers.engine import (
    BuildPlan,
    Engine,
    Request,
    StageError,
    StageJob,
    StageReport,
    from_json,
    to_json,
)
from workers.errors import BuildFailed, failure_of
from workers.host.client import EngineHost
from workers.host.watch import UNWATCHED, Watching


class InProcessHost(EngineHost):
    """Calls the engine directly; keeps count of what was asked."""

    def __init__(self, log_dir: Path, engine: str = "FakeEngine") -> None:
        super().__init__(fake_spec(), log_dir=log_dir)
        install()
        made: Engine = getattr(importlib.import_module("modelmill_fakes"), engine)()
        self.engine = made
        self.plans = 0
        self.ran: list[str] = []

    def tools(self) -> dict[str, str]:
        return dict(self.engine.tools())

    def environment(self) -> dict[str, Any]:
        return {
            "python": {"implementation": "CPython", "version": "3.11.9"},
            "system": {"name": "Linux", "release": "6.1", "machine": "x86_64"},
            "distributions": [
                {"name": "fake", "version": "1", "license": "MIT"},
                {"name": "unlicensed", "version": "2.0+cpu", "license": ""},
            ],
        }

    def plan(self, request: Request, watching: Watching = UNWATCHED) -> BuildPlan:
        self.plans += 1
        try:
            plan = self.engine.plan(request)
        except StageError as error:
            raise BuildFailed(failure_of(error.failure), "plan", str(error)) from error
        return from_json(to_json(plan), BuildPlan)

    def run(self, job: StageJob, watching: Watching = UNWATCHED) -> StageReport:
        self.ran.append(f"{job.stage} {job.component}".strip())
        try:
            report = self.engine.run(replace(job, progress=watching.progress))
        except StageError as error:
            failure = failure_of(error.failure or job.stage)
            raise BuildFailed(
                failure, job.stage, str(error), hint=error.hint, retryable=error.retryable
            ) from error
        info = {**report.info, "peak_memory": 0, "seconds": 0.0}
        return StageReport(report.facts, info)

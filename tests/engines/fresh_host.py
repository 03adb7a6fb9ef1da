"""An engine host that starts anew before every stage, as after a resume with everything cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from workers.engine import StageJob, StageReport
from workers.host.client import EngineHost
from workers.host.watch import UNWATCHED, Watching


class FreshHost(EngineHost):
    """Every stage is the first thing that its process does; `said` has what each reported."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.said: dict[str, list[str]] = {}

    def run(self, job: StageJob, watching: Watching = UNWATCHED) -> StageReport:
        self.close()
        said = self.said.setdefault(" ".join(filter(None, (job.stage, job.component))), [])
        told = _both(said.append, watching.progress)
        return super().run(job, replace(watching, progress=told))


def _both(first: Callable[[str], None], second: Callable[[str], None]) -> Callable[[str], None]:
    def call(text: str) -> None:
        first(text)
        second(text)

    return call

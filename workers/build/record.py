"""`build.json`: how a package was built; it may differ from run to run."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from workers.build.graph import Walked
from workers.build.stages import StageRun


@dataclass(frozen=True, slots=True)
class Clock:
    """When a build began: by the wall clock for people, by a monotonic clock for durations."""

    began: float = field(default_factory=time.monotonic)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began


def build_record(
    stamp: str,
    version: str,
    tools: Mapping[str, str],
    clock: Clock,
    walked: Walked,
    runs: Sequence[StageRun],
    attempt: int,
) -> dict[str, Any]:
    """The record of a build before verification adds its evidence."""
    infos = {task.key.key: action.info for task, action in walked.tasks}
    return {
        "stamp": stamp,
        "version": version,
        "host": {
            "name": platform.node(),
            "system": platform.system(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "started": clock.started.isoformat(timespec="seconds"),
        "seconds": round(clock.seconds, 3),
        "attempt": attempt,
        "tools": dict(tools),
        "stages": [
            {
                "stage": run.stage,
                "component": run.component,
                "reused": run.reused,
                "seconds": round(run.seconds, 3),
                "bytes": run.bytes,
                "peak_memory": run.peak_memory,
                "info": dict(infos[run.key]),
            }
            for run in runs
        ],
        "verification": [],
        "runtimes": [],
    }

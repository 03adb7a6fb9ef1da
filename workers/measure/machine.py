"""The machine that a measurement was made on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from machine.memory import total


@dataclass(frozen=True, slots=True)
class Machine:
    """Enough to tell whether two measurements were made on the same machine."""

    name: str
    system: str
    """`Linux x86_64`."""
    processor: str
    cores: int
    memory: int
    """Bytes."""


@cache
def this_machine() -> Machine:
    """The one that asks."""
    return Machine(
        name=platform.node() or "localhost",
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory=total(),
    )


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

"""A process that works on a state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO, cast

ROOT = Path(__file__).resolve().parents[2]


_PRELUDE = """
import sys
from matrix.status import Status
from state.state import open_state
from state.records import Owner
from state.records import Facts
state = open_state(sys.argv[1])
sweep = int(sys.argv[2])
me = Owner.here(sys.argv[3])
def say(*words): print(*words, flush=True)
def hear(): return sys.stdin.readline().strip()
"""


DRAIN = """
say("ready")
hear()
while (lease := state.lease(sweep, me, 60)) is not None:
    for one in state.outcomes(sweep, model=lease.model):
        if one.status.open:
            state.record(lease, sweep, one.cell, Status.BUILDING)
            state.record(lease, sweep, one.cell, Status.PUBLISHED, Facts(tree="a" * 64))
    assert state.release(lease, done=True)
    say(lease.model)
"""


class Child:
    """A Python process that talks line by line."""

    def __init__(self, script: str, where: Path | str, sweep: int, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _PRELUDE + script, str(where), str(sweep), name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: object = "") -> None:
        print(line, file=cast("IO[str]", self.process.stdin), flush=True)

    def hear(self) -> str:
        return cast("IO[str]", self.process.stdout).readline().strip()

    def rest(self) -> list[str]:
        output, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        return output.split()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

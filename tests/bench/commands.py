"""What a start of each command costs: `python tests/bench/commands.py [FOLDER]`.

Processor time (user and system, children included), the least of three runs: a busy machine
stretches the clock, not this. FOLDER is where a sweep has been run; without it the commands
that read its state and feed are left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ANYWHERE = ("--help", "sweep --help", "feed --help", "plan demo", "engine ls")
AFTER_A_SWEEP = ("status", "plan demo", "feed ls", "store du", "status --failed", "status --sweeps")
RUNS = 3


def cost(folder: Path, *arguments: str) -> float:
    """Seconds of processor time of one run."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    return after[2] + after[3] - before[2] - before[3]


def measure(folder: Path, commands: tuple[str, ...]) -> None:
    """Print the least of some runs of every command."""
    for command in commands:
        words = command.split()
        print(f"{min(cost(folder, *words) for _ in range(RUNS)):6.2f} s  modelmill {command}")


def main() -> None:
    """Measure in an empty folder, then where a sweep has been."""
    with tempfile.TemporaryDirectory() as empty:
        measure(Path(empty), ANYWHERE)
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        print(f"in {folder}")
        measure(folder, AFTER_A_SWEEP)


if __name__ == "__main__":
    main()

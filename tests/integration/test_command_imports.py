"""What a command loads before it has anything to do: the cost of every start, without a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from flows.cli.main import COMMANDS
from matrix.status import Status
from state.records import CellRow, Owner, StageRun
from state.state import open_state

HEAVY = {"alembic", "azure", "fastapi", "numpy", "onnx", "onnxruntime", "prefect", "rich", "torch"}
DATABASE = {"pydantic", "sqlalchemy", "sqlmodel"}
VERBS = ("feed ls", "feed pull", "store du", "engine ls")
_SCRIPT = """
import contextlib, io, sys
from flows.cli.main import main
for words in sys.argv[1:]:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        code = main(words.split())
        assert code == 0, (words, code)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def loaded(folder: Path, *commands: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after these commands."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *commands],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_help_for_everything_loads_no_command(tmp_path: Path) -> None:
    names = loaded(tmp_path, "--help")
    assert not names & (HEAVY | DATABASE | {"feed", "psutil", "state"})


@pytest.mark.parametrize("command", [*COMMANDS, *VERBS])
def test_help_loads_nothing_heavy(command: str, tmp_path: Path) -> None:
    assert not loaded(tmp_path, f"{command} --help") & (HEAVY | DATABASE)


def test_a_plan_loads_no_database(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "plan demo") & (HEAVY | DATABASE)
    assert list(tmp_path.iterdir()) == []


def test_looking_into_a_feed_loads_no_database(tmp_path: Path) -> None:
    DirectoryFeed(tmp_path / "feed").preflight([])
    assert not loaded(tmp_path, "feed ls --feed feed") & (HEAVY | DATABASE)


READING = (
    "status",
    "status --sweeps",
    "status --failed --json",
    "diff s t",
    "plan demo",
    "report t --against s --output report.html",
    "explain demo/bert-tiny:text-classification@mlas_cpu --stamp t",
)


def test_commands_that_read_a_state_load_no_database(tmp_path: Path) -> None:
    """Python's own SQLite reads it; loading SQLAlchemy would take longer than all the rest."""
    name = "demo/bert-tiny:text-classification"
    cells = [CellRow(f"{name}@mlas_cpu", name, "mlas_cpu", "fp32", "modelmill-m", "0.0.0-s-m")]
    with open_state(tmp_path / ".modelmill" / "state.db") as state:
        for stamp in ("s", "t"):
            settings = {"catalog": "demo"}
            info = state.begin(stamp, "dir:feed", cells, {name: 0.0}, settings, {})
        lease = state.lease(info.id, Owner.here("slot-1"), 60)
        stage = StageRun(cells[0].cell, "mlas_cpu", "export", "key", {})
        state.record(lease, info.id, cells[0].cell, Status.BUILDING, stages=[stage])
    heavy = loaded(tmp_path, *READING) & (HEAVY | DATABASE)
    assert not heavy

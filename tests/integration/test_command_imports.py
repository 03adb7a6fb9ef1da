"""What a command loads before it has anything to do: the cost of every start, without a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from flows.cli.commands import COMMANDS
from state.records import CellRow, ModelRow
from state.state import open_state

HEAVY = {"alembic", "azure", "fastapi", "numpy", "onnx", "onnxruntime", "prefect", "rich", "torch"}
DATABASE = {"pydantic", "sqlalchemy", "sqlmodel"}
VERBS = ("feed ls", "feed pull", "store du", "engine ls")
_SCRIPT = """
import contextlib, io, sys
from flows.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
    assert code == 0, code
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a command."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments],
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
    assert not loaded(tmp_path, *command.split(), "--help") & (HEAVY | DATABASE)


def test_a_plan_loads_no_database(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "plan", "demo") & (HEAVY | DATABASE)
    assert list(tmp_path.iterdir()) == []


def test_looking_into_a_feed_loads_no_database(tmp_path: Path) -> None:
    DirectoryFeed(tmp_path / "feed").preflight([])
    assert not loaded(tmp_path, "feed", "ls", "--feed", "feed") & (HEAVY | DATABASE)


def test_status_loads_the_database_and_nothing_else_heavy(tmp_path: Path) -> None:
    cells = [CellRow("m:t@mlas_cpu", "m:t", "mlas_cpu", "fp32", "modelmill-m", "0.0.0-s-m")]
    with open_state(tmp_path / "state.db") as state:
        state.begin("s", "dir:feed", cells, [ModelRow("m:t", 0)], {}, {})
    assert not loaded(tmp_path, "status", "--state", "state.db") & HEAVY

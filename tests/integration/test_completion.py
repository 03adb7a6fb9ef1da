"""What a shell gets when it asks what may come next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.commands.completion import SHELLS
from flows.cli.main import main
from matrix.errors import Exit
from state.state import open_state
from tests.states.samples import begin


def suggested(line: str, folder: Path) -> list[str]:
    answer = folder / "answer"
    env = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([sys.executable, "-m", "flows.cli.main"], env=env, cwd=folder, check=True)
    return [one.strip() for one in answer.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("modelmill st", ["status", "store", "state"]),
        ("modelmill sweep demo --ta", ["--target", "--task", "--targets-file"]),
        ("modelmill feed pull --d", ["--dest"]),
        ("modelmill retry --class N", ["NETWORK"]),
        ("modelmill sweep demo --target ov_", ["ov_cpu", "ov_npu", "ov_gpu"]),
        ("modelmill compile --profile htp7", ["htp73"]),
        ("modelmill plan de", ["demo"]),
        ("modelmill tune de", ["demo"]),
        ("modelmill report 2026", []),
    ],
)
def test_commands_flags_and_values_are_completed(
    line: str, expected: list[str], tmp_path: Path
) -> None:
    assert suggested(line, tmp_path) == expected


def test_stamps_and_cells_come_from_the_state(tmp_path: Path) -> None:
    with open_state(tmp_path / "home" / "state.db") as state:
        begin(state, stamp="20260609")
    there = f"--home {tmp_path / 'home'}"
    assert suggested(f"modelmill report {there} 2026", tmp_path) == ["20260609"]
    cells = suggested(f"modelmill explain {there} org/model-1:task@q", tmp_path)
    assert [one.rpartition("@")[2] for one in cells] == ["qnn_npu"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_code(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == Exit.OK
    code = capsys.readouterr().out
    assert "modelmill" in code
    assert "_ARGCOMPLETE" in code

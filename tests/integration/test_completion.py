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
    ],
)
def test_commands_flags_and_values_are_completed(
    line: str, expected: list[str], tmp_path: Path
) -> None:
    assert suggested(line, tmp_path) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_code(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == Exit.OK
    code = capsys.readouterr().out
    assert "modelmill" in code
    assert "_ARGCOMPLETE" in code

"""What the system refuses is one line that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flows.cli.main import main
from matrix.errors import Exit

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows keeps a folder that a process is in, and makes no loop"
)


def test_a_current_folder_that_was_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["plan", "demo"]) == Exit.UNUSABLE
    assert "the current folder was removed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("plan", "demo", "--home"), ("feed", "ls", "--feed"), ("status", "--state")],
    ids=lambda words: words[0],
)
def test_a_link_to_itself_is_told(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert main([*words, "loop"]) == Exit.UNUSABLE
    error = capsys.readouterr().err
    assert "loop" in error
    assert error.count("\n") == 1

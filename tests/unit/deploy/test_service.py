"""What a command is given where its service manager gives nothing."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

import pytest

from deploy import service
from matrix.errors import Exit, UsageError
from tests.machine.timing import eventually


def file(folder: Path, text: str) -> Path:
    path = folder / "worker.env"
    path.write_text(text, "utf-8")
    return path


def test_lines_become_variables(tmp_path: Path) -> None:
    text = "\ufeff# of the fleet\r\n\nA=1\r\n  B_2 = no\nC=x=y # not a comment\nD=\n"
    with pytest.raises(UsageError):  # docker and systemd know no blanks around the sign either
        service.read_environment(file(tmp_path, text))
    text = text.replace("B_2 = no", "B_2='kept'")
    found = service.read_environment(file(tmp_path, text))
    assert found == {"A": "1", "B_2": "'kept'", "C": "x=y # not a comment", "D": ""}


def test_a_line_that_is_none_is_named_but_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 2 is not NAME=value") as raised:
        service.read_environment(file(tmp_path, "A=1\nhunter2\n"))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_said_in_a_line(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "worker.env"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as raised:
        service.main(["--env-file", str(path), "doctor"])
    assert raised.value.code == Exit.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_file_stops_like_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_LOOK", 0.01)
    asked = threading.Event()

    def handler(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    before = signal.signal(signal.SIGINT, handler)
    path = tmp_path / "stop"
    path.touch()
    try:
        done = service.stop_when_asked(path)
        assert not path.exists()  # of a stop that has been
        path.touch()
        assert eventually(asked.is_set)  # Windows runs no handler while the main thread waits
        done.set()
    finally:
        signal.signal(signal.SIGINT, before)

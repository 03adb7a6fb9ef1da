"""A sweep on PostgreSQL, followed on a terminal of a machine that shares nothing but the state."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from state.state import open_state
from tests.machine.timing import eventually
from tests.services.postgres import PASSWORD, Server, postgres
from tests.sweeps.command import CLI, LIMIT, Project, model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is POSIX")

_ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as made:
        yield made


@pytest.fixture
def url(server: Server) -> str:
    found = server.new_database()
    open_state(found).close()
    return found


class Terminal:
    """The command on a terminal of its own, and everything that it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self._fd = fd
        self._data = b""

    @property
    def text(self) -> str:
        return _ANSI.sub("", self._data.decode(errors="replace"))

    def until(self, check: Callable[[str], bool]) -> str:
        """Read on until it comes true, or until the end."""
        while not check(self.text):
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the other end was closed
                data = b""
            if not data:
                break
            self._data += data
        return self.text


@contextmanager
def terminal(project: Project, *arguments: str) -> Iterator[Terminal]:
    import pty

    ours, theirs = pty.openpty()
    size = {"COLUMNS": "140", "LINES": "30", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, *CLI, *arguments],
        cwd=project.folder,
        env={**project.environment(), **size},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
        process.wait(LIMIT)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)


AT_WORK = r"slot-\d+: [^\n]* tiny/\w+:fill-mask@\w+"


def test_a_sweep_is_followed_live_from_another_machine(
    project: Project, url: str, tmp_path: Path
) -> None:
    project.env["MODELMILL_STATE"] = url
    elsewhere = Project(tmp_path / "elsewhere", {"MODELMILL_STATE": url})
    elsewhere.folder.mkdir()
    known = [model(f"tiny/{name}") for name in ("a", "b", "bad")]
    project.ok("sweep", project.catalog(*known), "--target", "qnn_npu", "--stamp", "before")
    project.ok("store", "clear")  # estimates stay, and everything is built again

    gate = project.folder / "gate"
    catalog = project.catalog(
        known[0],
        model("tiny/b", act={"export": f"wait:{gate}"}),
        model("tiny/bad", act={"export": f"wait:{gate}", "quantize": "fail:QUANTIZE"}),
    )
    with project.start(
        "sweep", catalog, "--target", "qnn_npu", "--stamp", "seen", plain=True
    ) as at:
        assert eventually(gate.exists, LIMIT)
        with terminal(elsewhere, "status", "seen", "--watch") as screen:
            screen.until(lambda text: re.search(AT_WORK, text) is not None)
            gate.with_name("gate.go").touch()
            text = screen.until(lambda _text: False)
        assert at.end().code == 1
    assert screen.process.returncode == 0
    assert "\rsweep seen -> " in text
    assert re.search(AT_WORK, text)
    assert re.search(r"\d/3\] published +tiny/b:fill-mask@qnn_npu", text)
    assert re.search(r"/3\] build_failed +tiny/bad:fill-mask@qnn_npu +QUANTIZE told to", text)
    assert re.search(r"about \S+ left", text)
    assert re.search(r"disk about .+, memory about .+", text)
    assert "sweep seen: 3 cells: 2 published, 1 build failed" in text
    assert "next: do not tell it to" in text
    assert PASSWORD not in text
    assert list(elsewhere.folder.iterdir()) == []

    told = elsewhere.session(
        [
            ("status", "seen", "--failed"),
            ("diff", "before", "seen"),
            ("report", "seen", "--against", "before", "-o", "seen.html", "--summary", "out"),
        ]
    )
    assert [ran.code for ran in told] == [0, 0, 0], told
    assert "before -> seen: 1 now fails, 2 unchanged" in told[1].out
    assert {path.name for path in (elsewhere.folder / "out").iterdir()} == {
        "junit.xml",
        "summary.json",
        "summary.md",
    }
    assert PASSWORD not in (elsewhere.folder / "seen.html").read_text("utf-8")


def test_looking_away_leaves_the_terminal_and_the_sweep_alone(
    project: Project, url: str, tmp_path: Path
) -> None:
    project.env["MODELMILL_STATE"] = url
    elsewhere = Project(tmp_path / "elsewhere", {"MODELMILL_STATE": url})
    elsewhere.folder.mkdir()
    gate = project.folder / "gate"
    catalog = project.catalog(model(act={"export": f"wait:{gate}"}))
    with project.start(
        "sweep", catalog, "--target", "mlas_cpu", "--stamp", "seen", plain=True
    ) as at:
        assert eventually(gate.exists, LIMIT)
        with terminal(elsewhere, "status", "--watch") as screen:
            screen.until(lambda text: re.search(AT_WORK, text) is not None)
            screen.process.send_signal(signal.SIGINT)
            text = screen.until(lambda _text: False)
        gate.with_name("gate.go").touch()
        assert at.end().code == 0
    assert screen.process.returncode == 0
    assert "sweep seen: 1 cell" in text
    assert screen._data.rfind(b"\x1b[?25h") > screen._data.rfind(b"\x1b[?25l")

"""The detailed level with a viewer in a process of its own: what it writes, and how it fails."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.machine.timing import eventually
from tests.tracing.profiles import CONV2D, TWO, qhas, qnn_csv
from workers.measure.trace.interpret import Seen, interpret
from workers.measure.trace.operators import Readings, Window
from workers.measure.trace.result import FallbackReason
from workers.measure.trace.viewer import Viewer

LOOK = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert all(json.load(open(options["--config"]))["features"].values())
open(options["--input_log"]), open(options["--schematic"])
print("x" * 100_000)
{rest}
"""
WRITE = """
name = options["--output"].replace(".json", "_qnn_htp_analysis_summary.json")
open(name, "w").write(open("given.json").read())
"""


def viewer(rest: str, timeout: float = 60) -> Viewer:
    command = (sys.executable, "-c", LOOK.replace("{rest}", rest))
    return Viewer(command, Path("reader"), timeout)


def detail(folder: Path, used: Viewer) -> Readings:
    """With all files that QNN writes."""
    qnn_csv(folder / "profile.csv", TWO)
    told = {"profile": "profile.csv", "log": "profile_qnn.log", "schematics": ["g_schematic.bin"]}
    for name in ("profile_qnn.log", "g_schematic.bin"):
        (folder / name).touch()
    return interpret(Seen("qnn", "detail", folder, Window(0, 2), told, 1), lambda: used)


def test_detail_replaces_operators_and_summary(tmp_path: Path) -> None:
    qhas(tmp_path / "given.json", [CONV2D])
    found = detail(tmp_path, viewer(WRITE))
    assert found.lacking is None
    assert found.series[0].facts["op_type"] == "Conv2d"
    assert found.summary.inference_us == 1343
    assert list(found.inference) == [10, 200]
    assert found.artifacts["qhas"] == "optrace_qnn_htp_analysis_summary.json"
    assert found.artifacts["schematic"] == "g_schematic.bin"


@pytest.mark.parametrize(
    ("rest", "reason", "error"),
    [
        ("", FallbackReason.QHAS_MISSING, "wrote no analysis summary"),
        ("sys.exit('no license')", FallbackReason.VIEWER_FAILED, "exit code 1: .*no license"),
        (WRITE, FallbackReason.QHAS_PARSE_FAILED, "required field `data`"),
    ],
)
def test_without_a_summary_the_basic_level_is_left(
    tmp_path: Path, rest: str, reason: FallbackReason, error: str
) -> None:
    (tmp_path / "given.json").write_text("{}", "utf-8")
    found = detail(tmp_path, viewer(rest))
    assert found.lacking is not None
    assert found.lacking.reason is reason
    assert re.search(error, str(found.lacking))
    assert found.samples == 2


def test_a_viewer_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    hangs = """
import os, subprocess, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("pid", "w").write(str(child.pid))
time.sleep(600)
"""
    found = detail(tmp_path, viewer(hangs, timeout=3))
    assert found.lacking is not None
    assert found.lacking.reason is FallbackReason.VIEWER_TIMEOUT
    pid = tmp_path / "pid"
    if pid.exists():  # the machine was quick enough to start it
        assert eventually(partial(_is_over, int(pid.read_text())))


def _is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_viewer_that_cannot_be_started(tmp_path: Path) -> None:
    found = detail(tmp_path, Viewer((str(tmp_path / "missing"),), Path("reader")))
    assert found.lacking is not None
    assert found.lacking.reason is FallbackReason.VIEWER_FAILED

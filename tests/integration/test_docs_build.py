"""The docs build without a warning, and the tutorial does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sweeping import ROOT, Mill
from tests.unit.test_docs import DOCS, commands


def test_the_docs_build_strictly_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("myst_parser", reason="the docs extra is not installed")
    arguments = ["-m", "sphinx", "-q", "-W", "-n", "--keep-going", "-E", "-d", str(tmp_path / "d")]
    ran = subprocess.run(
        [sys.executable, *arguments, str(DOCS), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "html" / "index.html").exists()


def test_the_tutorial_does_what_it_says(mill: Mill) -> None:
    for words in commands(DOCS / "tutorial.md"):
        ran = mill.run(*words)
        assert ran.code == 0, (words, ran)
    assert ran.out.splitlines()[-1].endswith(" unchanged")
    summary = json.loads((mill.folder / "out" / "summary.json").read_text("utf-8"))
    assert (summary["stamp"], summary["exit_code"]) == ("tutorial", 0)
    assert "Sweep" in (mill.folder / "report.html").read_text("utf-8")
    assert list((mill.folder / "pulled").rglob("*.onnx"))
    assert "now fails" not in ran.out

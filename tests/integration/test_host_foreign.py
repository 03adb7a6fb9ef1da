"""The host in another interpreter: our code, but none of our packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.engine import fake_spec, request
from workers.engine import StageJob
from workers.errors import BuildFailed
from workers.host.client import EngineHost, EngineSpec

PROBE = """
import sys


class Probe:
    name = "probe"

    def tools(self):
        found = {"prefix": sys.prefix, "psutil": "no", "matrix": "no"}
        for name in ("psutil", "matrix.digest"):
            try:
                __import__(name)
            except ImportError:
                continue
            found[name.partition(".")[0]] = "yes"
        return found
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = tmp_path_factory.mktemp("foreign") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def test_an_engine_runs_in_an_interpreter_without_our_packages(
    python: Path, tmp_path: Path
) -> None:
    host = EngineHost(fake_spec(python), log_dir=tmp_path / "logs")
    out = tmp_path / "out"
    out.mkdir()
    plan = host.plan(request())
    host.run(StageJob("export", plan.stages[0].params, request(), {}, out))
    assert (out / "model.onnx").stat().st_size > 1000
    host.close()


def test_it_sees_our_rooms_and_not_our_site_packages(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe_engine.py").write_text(PROBE)
    monkeypatch.syspath_prepend(tmp_path)
    host = EngineHost(EngineSpec("probe", "probe_engine:Probe", python), log_dir=tmp_path)
    tools = host.tools()
    assert tools == {"prefix": str(python.parents[1]), "psutil": "no", "matrix": "yes"}
    host.close()


def test_what_is_no_python_is_one_clear_failure(tmp_path: Path) -> None:
    rubbish = tmp_path / "python"
    rubbish.write_text("#!/bin/sh\necho I am no python\n")
    rubbish.chmod(0o755)
    host = EngineHost(fake_spec(rubbish), log_dir=tmp_path / "logs")
    with pytest.raises(BuildFailed, match="engine host died"):
        host.tools()
    host.close()

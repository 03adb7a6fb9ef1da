"""Folders of the user's with the names of our packages get nowhere near a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import modelmill
from machine.children import module_command
from tests.machine.timing import patient
from tests.sweeps.command import Project, model

_WHERE = "import json, sys; print(json.dumps([sys.modules[n].__file__ for n in sys.argv[1:]]))"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder that has all our names, in the current folder and on PYTHONPATH."""
    elsewhere = tmp_path / "elsewhere"
    for name in modelmill.ROOMS:
        for folder in (tmp_path / name, elsewhere / name):
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(f"raise SystemExit('foreign {name}')\n")
    made = Project(tmp_path)
    paths = (str(elsewhere), str(tmp_path), made.environment()["PYTHONPATH"])
    made.env["PYTHONPATH"] = os.pathsep.join(paths)
    return made


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(120),
    )


def test_a_sweep_with_its_server_and_hosts_uses_our_own_packages(project: Project) -> None:
    catalog = project.catalog(model())
    done = run(project, "-m", "modelmill", "sweep", catalog, "--target", "mlas_cpu", "--stamp", "s")
    assert (done.returncode, done.stderr) == (0, "")
    assert project.statuses("s") == {"published": 1}
    status = run(project, "-m", "modelmill", "status", "s", "--json")
    assert json.loads(status.stdout)["counts"] == {"published": 1}
    assert project.alone()


def test_a_fleets_flows_are_our_own_packages(project: Project) -> None:
    code = f"import modelmill.fleet; {_WHERE}"
    done = run(project, "-c", code, "flows", "state", "feed", "workers", "matrix")
    assert done.returncode == 0, done.stderr
    for file in json.loads(done.stdout):
        assert Path(file).is_relative_to(modelmill.ROOT)


def test_a_process_that_we_start_is_our_own(project: Project) -> None:
    # The module alone is asked for: without its arguments it ends with a usage error of Python's.
    done = run(project, *module_command("flows.prefect.server_process")[1:])
    assert "foreign" not in done.stderr
    assert f"{modelmill.ROOT / 'flows' / 'prefect' / 'server_process.py'}" in done.stderr

"""What the integration tests share."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from flows.prefect.server import start_server
from tests.sweeps.command import Project


@pytest.fixture(scope="session")
def prefect_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated Prefect database: making one takes a server three seconds."""
    home = tmp_path_factory.mktemp("prefect-template")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    server = start_server(home, kept)
    server.wait(threading.Event())
    server.stop(15.0)
    return home / "prefect"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder to sweep in, for sweeps without Prefect."""
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


@pytest.fixture
def full_project(project: Project, prefect_template: Path) -> Project:
    """A folder to sweep in, for the whole command."""
    shutil.copytree(prefect_template, project.home / "prefect")
    return project

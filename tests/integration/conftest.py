"""What the integration tests share."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from flows.prefect.server import start_server
from tests.engines.hosted import SharedHost
from tests.sweeps.command import Project
from workers.host.engines import find_engine


@pytest.fixture(scope="session")
def prefect_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated Prefect database, one for all processes of pytest: it takes seconds to make."""
    own = tmp_path_factory.getbasetemp()
    home = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "prefect-template"
    home.mkdir(exist_ok=True)
    made = home / "made"
    with FileLock(home / "lock"):
        if not made.exists():
            kept = {name: text for name, text in os.environ.items() if name[:8] != "PREFECT_"}
            server = start_server(home, kept)
            server.wait(threading.Event())
            server.stop(15.0)
            made.touch()
    return home / "prefect"


@pytest.fixture(scope="session")
def optimum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHost]:
    """A warm engine: each start imports for seconds."""
    host = SharedHost(find_engine("optimum"), log_dir=tmp_path_factory.mktemp("optimum"))
    yield host
    host.end()


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

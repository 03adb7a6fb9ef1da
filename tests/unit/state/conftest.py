from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from state.state import State, open_state


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("state") / "empty.db"
    open_state(path).close()
    return path


@pytest.fixture
def state(empty: Path, tmp_path: Path) -> Iterator[State]:
    path = tmp_path / "state.db"
    shutil.copyfile(empty, path)
    with open_state(path) as opened:
        yield opened


@pytest.fixture
def where(state: State, tmp_path: Path) -> str:
    """The database of `state`, to be opened again."""
    return str(tmp_path / "state.db")

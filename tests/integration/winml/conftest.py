"""What the tests of the winml engine share: its models, the real command, a warm host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.hosted import SharedHost
from tests.engines.winml import builder, spec_of, winml_python
from tests.engines.winml_command import CommandLine, command_line
from workers.build.builder import Builder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `model_folder` puts models."""
    return tmp_path_factory.mktemp("winml-models")


@pytest.fixture(scope="session")
def winml() -> Iterator[CommandLine]:
    """The real `winml`."""
    with command_line() as found:
        yield found


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of the warm host."""
    return tmp_path_factory.mktemp("winml-home")


@pytest.fixture(scope="session")
def host(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHost]:
    """A warm host."""
    found = SharedHost(
        spec_of(winml_python(), HOME=str(home), USERPROFILE=str(home)),
        log_dir=tmp_path_factory.mktemp("winml-logs"),
    )
    yield found
    found.end()


@pytest.fixture
def engine(host: SharedHost, tmp_path: Path) -> Iterator[Builder]:
    """A builder on the warm host, with an empty store."""
    with builder(tmp_path, host=host) as made:
        yield made

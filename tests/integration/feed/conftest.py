"""Runs the conformance suite once for each feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.feeds.subjects import DELETING, FILLING, KINDS, Subject, opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for a `subject` once for each feed that can do what it needs."""
    if "subject" not in metafunc.fixturenames:
        return
    kinds = [*KINDS, *metafunc.config.getoption("--feed")]
    for mark, able in (("deletes", DELETING), ("fills", FILLING)):
        if metafunc.definition.get_closest_marker(mark):
            kinds = [kind for kind in kinds if kind in able]
    metafunc.parametrize("subject", kinds, indirect=True)


@pytest.fixture
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with opened(request.param, tmp_path) as found:
        yield found

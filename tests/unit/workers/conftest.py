from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.builder import BuilderHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BuilderHarness]:
    made = BuilderHarness(tmp_path / "one")
    yield made
    made.builder.close()
    made.store.close()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.in_memory import SweepHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SweepHarness]:
    made = SweepHarness(tmp_path)
    yield made
    made.close()

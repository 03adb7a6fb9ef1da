from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.in_memory import Floor


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    made = Floor(tmp_path)
    yield made
    made.close()

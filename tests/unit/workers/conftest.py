from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.builder import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "one")
    yield made
    made.builder.close()
    made.store.close()

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matrix.hypotheses import Hypothesis
from state.state import open_state
from tests.tunings.fakes import BASE, Play, Stage, cell, hypothesis, step

MS = 1_000_000


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Play]:
    """A tuning of hypotheses by opset, with the milliseconds of a run of each."""
    with open_state(tmp_path / "state.db") as state:

        def made(times: dict[int, float], *more: Hypothesis, **values: Any) -> Stage:
            built = {f"opset{opset}": round(ms * MS) for opset, ms in {BASE: 1.0, **times}.items()}
            steps = [step(one) for one in (*map(hypothesis, times), *more)]
            return Stage(state, cell(tmp_path), built, steps, **values)

        yield made

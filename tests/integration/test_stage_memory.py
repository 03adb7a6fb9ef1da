"""A stage takes at most 1.5 times the size of a model beyond 2 GB."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.bench import memory

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does"),
]


def test_stages_stay_within_one_and_a_half_times_the_model(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 20 * 1024**3:
        pytest.skip("needs 20 GB of disk")
    wanted = [memory.CELLS[name] for name in ("w8", "w4", "fp16", "w8a16")]
    bases = dict(memory.measure(tmp_path / "tiny", memory.TINY, "folder", wanted))
    config, size = memory.large(2.3)
    for stage, peak in memory.measure(tmp_path / "large", config, "folder", wanted):
        assert (peak.resident - bases[stage].resident) / size < 1.5, stage

"""Every stage as the first thing that a host does, as after a resume with all before it cached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines.optimum import plan_catalog
from workers.build.builder import Builder
from workers.engine import StageJob, StageReport
from workers.engines import find_engine
from workers.host.client import EngineHost
from workers.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


class FreshHost(EngineHost):
    """A host that starts anew before every stage."""

    def run(self, job: StageJob, **how: Any) -> StageReport:
        self.close()
        return super().run(job, **how)


@pytest.mark.parametrize("model", ["bert-tiny", "clip-tiny"])
def test_every_stage_works_as_the_first_of_its_process(model: str, tmp_path: Path) -> None:
    plan = plan_catalog("demo", tmp_path)
    prefix = f"demo/{model}:"
    cell = next(
        cell
        for cell in plan.cells()
        if cell.id.startswith(prefix) and cell.target.label == "qnn_npu"
    )
    trees = {}
    for kind in (EngineHost, FreshHost):
        root = tmp_path / kind.__name__
        host = kind(find_engine("optimum"), log_dir=root / "logs")
        made = Builder(Store(root / "store"), host, root / "work")
        try:
            built = made.build(cell)
            trees[kind] = built.tree
            assert kind is EngineHost or host.starts >= len(built.stages) > 3
        finally:
            made.close()
    assert trees[FreshHost] == trees[EngineHost]

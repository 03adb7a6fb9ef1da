"""Every stage as the first thing that a host does, as after a resume with all before it cached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import winml as line
from tests.engines.fresh_host import FreshHost
from workers.host.client import EngineHost

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_every_stage_works_as_the_first_of_its_process(
    name: str, models: Path, tmp_path: Path
) -> None:
    entry = line.folder_entry(name, line.model_folder(name, models))
    cell = line.cell(line.plan_of({f"tiny/{name}": entry}, tmp_path / "plan"), "qnn_npu")
    trees = {}
    for kind in (EngineHost, FreshHost):
        root = tmp_path / kind.__name__
        host = kind(line.spec_of(line.winml_python()), log_dir=root / "logs")
        with line.builder(root, host=host) as made:
            built = made.build(cell)
            trees[kind] = built.tree
            if isinstance(host, FreshHost):
                assert host.starts >= len(built.stages) > 3
                assert all(host.said.values()), host.said
    assert trees[FreshHost] == trees[EngineHost]

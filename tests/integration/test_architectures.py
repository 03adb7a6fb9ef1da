"""Families of our own and of other packages: exported, compared with PyTorch, verified."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engines.extension import install
from tests.sweeps.command import ROOT, Project

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

RING = """
[[model]]
id = "tiny/ring"
task = "image-classification"
random = { architecture = "ringnet", seed = 1, config = { width = 4 } }
"""


def test_the_package_that_the_pages_show_is_built_and_verified(tmp_path: Path) -> None:
    site = install(tmp_path / "site")
    (tmp_path / "ring.toml").write_text(RING, "utf-8")
    path = os.pathsep.join((str(ROOT), str(site)))
    made = Project(tmp_path, {"MODELMILL_ENGINE": "optimum", "PYTHONPATH": path})
    ran = made.run("sweep", "ring.toml", "--target", "mlas_cpu", "--stamp", "one")
    assert ran.code == 0, ran
    assert made.statuses("one") == {"published": 1}

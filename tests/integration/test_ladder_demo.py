"""The demo catalog on one CPU-only machine: every cell is run, three targets on their own EP."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.services.installing import lacking
from tests.sweeps.command import Project
from tests.verification.expected import OWN, TARGETS
from workers.runtimes.runtime import KINDS

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

CPU = "CPUExecutionProvider cpu"
MODELS = 7
COMPOSITES = {
    "demo/t5-tiny": "decoder/model.onnx end to end logits",
    "demo/clip-tiny": "end to end logits",
}


def test_every_cell_of_the_demo_is_run_and_three_targets_on_their_own(tmp_path: Path) -> None:
    if not all(kind.installed for kind in KINDS if kind.extra):
        lacking("the runtimes of qnn and openvino")
    project = Project(tmp_path, {"MODELMILL_ENGINE": "optimum", "MODELMILL_RUNTIMES": ""})
    with project.start("sweep", "demo", "--stamp", "one", plain=True) as running:
        ran = running.end(800)
    assert ran.code == 0, ran
    cells = [one for one in project.outcomes("one").values() if one.target != "export"]
    assert Counter(one.target for one in cells) == dict.fromkeys(TARGETS, MODELS)
    for one in cells:
        assert one.evidence is not None
        assert one.evidence["verdict"] == {"level": "parity", "reached": True}, one.cell
        rungs = {rung["name"]: rung for rung in one.evidence["rungs"]}
        assert [rung["passed"] for rung in rungs.values()] == [True] * 6, one.cell
        here = OWN.get(one.target)
        parity = rungs["parity"]["evidence"]
        assert parity.keys() == {CPU, here or CPU, "limits", "samples"}, one.cell
        cpu, *_others = one.evidence["runtimes"]
        assert (cpu["name"], cpu["ran"]) == (CPU, True), one.cell
        (own,) = [found for found in one.evidence["runtimes"] if found["own"]]
        if here:
            assert (own["name"], own["ran"]) == (here, True), one.cell
            taken, every = own["taken"]
            assert taken > 0.5 * every, (one.cell, taken, every)
        else:
            assert own["not_run"], one.cell
        for runtime in {CPU, here or CPU}:
            assert all(found["sets"] >= 3 for found in rungs["loads"]["evidence"][runtime].values())
            for model, row in COMPOSITES.items():
                if one.cell.startswith(model):
                    assert row in parity[runtime], (one.cell, runtime, list(parity[runtime]))


def test_a_graph_of_8_and_16_bits_computes_the_same_on_the_npu(tmp_path: Path) -> None:
    if not all(kind.installed for kind in KINDS if kind.extra == "qnn"):
        lacking("the runtime of qnn")
    project = Project(tmp_path, {"MODELMILL_ENGINE": "optimum", "MODELMILL_RUNTIMES": ""})
    only = ("--only", "demo/vit-tiny:*", "--target", "qnn_npu", "--precision", "w8a8")
    with project.start("sweep", "demo", *only, "--stamp", "one", plain=True) as running:
        ran = running.end(800)
    assert ran.code == 0, ran
    (cell,) = [one for one in project.outcomes("one").values() if one.target != "export"]
    assert cell.evidence is not None
    feed = project.feed()
    told = [one.description for name in feed.packages() for one in feed.versions(name)]
    assert any("operators in 16-bit results" in one for one in told), told
    (rows,) = [rung["evidence"][OWN["qnn_npu"]] for rung in cell.evidence["rungs"]
               if rung["name"] == "parity"]  # fmt: skip
    assert min(row["snr"] for row in rows.values()) >= 12

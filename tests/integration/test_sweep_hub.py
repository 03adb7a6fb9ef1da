"""Sweeps of models on the Hub: a ready file inside a repository, and a hub out of reach."""

from __future__ import annotations

from pathlib import Path

from matrix.errors import Exit
from tests.engines.onnx_files import convolution
from tests.services import hub
from tests.sweeps.command import Project

READY = "org/ready/onnx/model.onnx"


def catalog(*names: str) -> str:
    """Models whose repositories hold no image processor."""
    return "\n".join(
        f'[[model]]\nid = "{name}"\ntask = "image-classification"\n'
        'samples = { kind = "synthetic", reason = "its weights are noise" }\n'
        for name in names
    )


def test_the_hub_is_asked_by_one_cell_for_all_and_told_once(tmp_path: Path) -> None:
    convolution(tmp_path / "files" / "model.onnx", external=True)
    files = {
        f"onnx/{file.name}": file.read_bytes() for file in sorted((tmp_path / "files").iterdir())
    }
    (tmp_path / "catalog.toml").write_text(
        catalog(READY, "org/gone-1", "org/gone-2", "org/gone-3"), encoding="utf-8"
    )
    with hub.serve({"org/ready": {**files, "LICENSE": b"free"}}) as served:
        env = {
            "MODELMILL_ENGINE": "optimum",
            "MODELMILL_JOBS": "1",
            "MODELMILL_TRIES": "2",
            "HF_ENDPOINT": served.url,
            "HF_HOME": str(tmp_path / "cache"),
        }
        project = Project(tmp_path, env)
        targets = ("--target", "mlas_cpu,ov_cpu,qnn_npu")
        ran = project.run("sweep", "catalog.toml", "--stamp", "s1", *targets)
    assert ran.code == Exit.CELLS_FAILED, ran
    assert ran.out.count("are not in the local cache fail until it is back") == 1, ran.out
    asked = {name: served.asked.count(name) for name in ("org/gone-2", "org/gone-3")}
    assert asked == {"org/gone-2": 0, "org/gone-3": 0}
    assert 0 < served.asked.count("org/gone-1") <= 2
    with project.state() as state:
        outcomes = list(state.outcomes(state.sweeps()[-1].id))
    failed = [one for one in outcomes if one.status.failed]
    assert {(one.failure, one.message, one.hint) for one in failed} == {
        (
            "NETWORK",
            "the Hugging Face hub cannot be reached: HTTP 503",
            "when the hub is back: modelmill retry s1 --class NETWORK",
        )
    }
    assert {one.cell.partition(":")[0] for one in outcomes if not one.status.failed} == {READY}
    assert not (tmp_path / "cache" / "hub").exists()

"""Families of our own and of other packages: exported, compared with PyTorch, verified."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from matrix.catalog import load_catalog
from matrix.model import Model
from tests.engines.extension import install
from tests.engines.sources import policy
from tests.services.installing import lacking
from tests.sweeps.command import ROOT, Project
from workers import composition
from workers.engine import Request, StageJob
from workers.optimum_engine import OptimumEngine
from workers.optimum_engine.architectures.rows import rows

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    # The tools' own deprecations are theirs to mend; the cell's log has them.
    pytest.mark.filterwarnings("default"),
]

SAMPLE = (
    ("fnet", "fill-mask"),  # a patch
    ("mixtral", "text-generation"),  # experts
    ("videomae", "video-classification"),  # a row
    ("llava", "image-text-to-text"),  # components
    ("ctrl", "text-generation"),  # no cache
    ("longformer", "feature-extraction"),  # windows
    ("recurrent_gemma", "feature-extraction"),  # a scaling that a trace lacks
    ("doge", "text-classification"),  # its fused attention forgets the order of the text
)
RING = """
[[model]]
id = "tiny/ring"
task = "image-classification"
random = { architecture = "ringnet", seed = 1, config = { width = 4 } }
"""


def zoo() -> dict[tuple[str, str], Model]:
    models = load_catalog("zoo", base=Path.cwd()).models
    return {(one.source.ref, one.task): one for one in models}


ROWS = {(name, task) for name, row in rows().items() for task in row.tasks}
OTHERS = sorted((ROWS & zoo().keys()) - {*SAMPLE})


def distances(model: Model, root: Path) -> list[float]:
    """Of each output of an export from PyTorch's, as a cosine."""
    source = {
        "kind": "random",
        "ref": model.source.ref,
        "seed": model.source.seed,
        "config": dict(model.source.config),
    }
    told = {"id": model.id, "task": model.task, "model_type": model.source.ref, "source": source}
    request = Request(told, {"label": "mlas_cpu"}, policy())
    engine = OptimumEngine()
    specs = {spec.name: spec for spec in engine.plan(request).stages}
    for stage, seen in (
        ("export", ()),
        ("inputs", ("export",)),
        ("reference", ("export", "inputs")),
    ):
        out = root / stage
        out.mkdir(parents=True)
        params = specs["inputs" if stage == "reference" else stage].params
        report = engine.run(
            StageJob(stage, params, request, {name: root / name for name in seen}, out)
        )
    found = report.facts["outputs"].values()
    return [one.get("cosine", 1.0) for outputs in found for one in outputs.values()]


@pytest.mark.parametrize(("architecture", "task"), SAMPLE)
def test_an_export_computes_what_pytorch_does(architecture: str, task: str, tmp_path: Path) -> None:
    assert min(distances(zoo()[architecture, task], tmp_path)) > 0.9999


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task"), OTHERS)
def test_all_other_exports_do_so_too(architecture: str, task: str, tmp_path: Path) -> None:
    assert min(distances(zoo()[architecture, task], tmp_path)) > 0.9999


def test_what_an_image_gives_feeds_the_language_model(tmp_path: Path) -> None:
    distances(zoo()["llava", "image-text-to-text"], tmp_path)
    record = composition.read(tmp_path / "export")
    assert record
    assert [one.name for one in record.components] == ["vision", "language"]
    (link,) = record.links
    assert (link.output, link.input) == ("vision/image_features", "language/image_features")
    facts = json.loads((tmp_path / "export" / "composition.json").read_text("utf-8"))
    assert facts["joins"] == []


def test_operators_said_with_others_compute_the_same() -> None:
    import torch

    from workers.optimum_engine.architectures import patches

    torch.manual_seed(0)
    parts = torch.randn(2, 12, 6)
    sizes = {"output_size": (4, 6), "kernel_size": (2, 2), "stride": (2, 2)}
    assert torch.equal(patches.fold(parts, **sizes), torch.nn.functional.fold(parts, **sizes))
    image = torch.randn(2, 3, 7, 8)
    pooled = torch.nn.functional.adaptive_avg_pool2d(image, 3)
    assert torch.allclose(patches.adaptive_avg_pool2d(image, 3), pooled, atol=1e-6)
    cube = torch.randn(2, 3, 4)
    assert torch.equal(patches.permute(cube, 0, -1, 1), cube.transpose(1, 2))
    assert torch.equal(patches.permute(cube, (-1, 0, 1)), cube.permute(2, 0, 1))
    assert patches.full((2,), 0).dtype is torch.int64
    assert patches.full((2,), fill_value=True).all()
    assert patches.full((2,), 0.5).dtype is torch.float32


def test_windows_of_a_text_are_those_of_transformers() -> None:
    import torch
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    from workers.optimum_engine.architectures import longformer

    for length in (8, 16):
        states = torch.randn(3, length, 5)
        wanted = LongformerSelfAttention._chunk(states, 4)
        assert torch.equal(longformer.chunk(None, states, 4), wanted)


def test_the_name_of_a_backbone_gives_way_to_its_configuration() -> None:
    from workers.sources.load import random_config

    backbone = {"model_type": "resnet", "depths": [1, 1, 1, 1]}
    config = {"use_timm_backbone": False, "backbone_config": backbone}
    found = random_config({"ref": "conditional_detr", "config": config})
    assert found.backbone is None
    assert found.backbone_config.depths == [1, 1, 1, 1]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_package_that_the_pages_show_is_built_and_verified(
    exporter: str, tmp_path: Path
) -> None:
    if exporter == "dynamo" and find_spec("onnxscript") is None:
        lacking("onnxscript")
    site = install(tmp_path / "site")
    with (site / "ringnet" / "architectures.toml").open("a", encoding="utf-8") as stream:
        stream.write(f'exporter = "{exporter}"\n')
    (tmp_path / "ring.toml").write_text(RING, "utf-8")
    path = os.pathsep.join((str(ROOT), str(site)))
    made = Project(tmp_path, {"MODELMILL_ENGINE": "optimum", "PYTHONPATH": path})
    ran = made.run("sweep", "ring.toml", "--target", "mlas_cpu", "--stamp", "one")
    assert ran.code == 0, ran
    assert made.statuses("one") == {"published": 1}

"""Families of our own and of other packages: exported, compared with their models, verified."""

from __future__ import annotations

import json
import os
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from matrix.catalog import load_catalog
from matrix.model import Model
from tests.engines.extension import install
from tests.engines.sources import policy
from tests.services.installing import lacking
from tests.sweeps.command import ROOT, Project
from workers import composition
from workers.engine import Request, StageError, StageJob
from workers.optimum_engine import OptimumEngine, originals, tracing
from workers.optimum_engine.architectures.rows import rows
from workers.sources import compared, load

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
    ("prophetnet", "text2text-generation"),  # a mask that is filled in place
    ("recurrent_gemma", "feature-extraction"),  # a scaling that a trace lacks
    ("doge", "text-classification"),  # its fused attention forgets the order of the text
)
RING = """
[[model]]
id = "tiny/ring"
task = "image-classification"
random = { architecture = "ringnet", seed = 7, config = { width = 4 } }
"""


def zoo() -> dict[tuple[str, str], Model]:
    models = load_catalog("zoo", base=Path.cwd()).models
    return {(one.source.ref, one.task): one for one in models}


ROWS = {(name, task) for name, row in rows().items() for task in row.tasks}
OTHERS = sorted((ROWS & zoo().keys()) - {*SAMPLE})


def exported(model: Model, out: Path) -> dict[str, Any]:
    """How the export of a model is compared with it; one that differs raises."""
    source = {
        "kind": "random",
        "ref": model.source.ref,
        "seed": model.source.seed,
        "config": dict(model.source.config),
    }
    told = {"id": model.id, "task": model.task, "model_type": model.source.ref, "source": source}
    request = Request(told, {"label": "mlas_cpu"}, policy())
    engine = OptimumEngine()
    spec = engine.plan(request).stages[0]
    out.mkdir()
    report = engine.run(StageJob("export", spec.params, request, {}, out))
    for rows_of in report.info.get("compared", {}).values():
        assert all("snr" in row or "agreement" in row for row in rows_of.values())
    return dict(report.facts["compared"])


@pytest.mark.parametrize(("architecture", "task"), SAMPLE)
def test_an_export_computes_what_its_model_does(
    architecture: str, task: str, tmp_path: Path
) -> None:
    found = exported(zoo()[architecture, task], tmp_path / "out")
    assert (found["samples"], found["kind"], found["snr"]) == (8, "synthetic", ">= 47")
    assert {one["model"] for one in found["parts"].values()} == {"unchanged"}


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task"), OTHERS)
def test_all_other_exports_do_so_too(architecture: str, task: str, tmp_path: Path) -> None:
    exported(zoo()[architecture, task], tmp_path / "out")


def test_a_decoder_is_compared_in_both_graphs(tmp_path: Path) -> None:
    found = exported(zoo()["gpt2", "text-generation-with-past"], tmp_path / "out")
    assert found["samples"] == 4
    assert found["parts"].keys() == {"prefill", "decode"}
    assert {one["model"] for one in found["parts"].values()} == {"unchanged"}


def test_a_wrong_replacement_of_a_method_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.optimum_engine.architectures import layers

    def waves(size: Any) -> tuple[Any, Any]:
        cosines, sines = own(size)
        return cosines, sines * 0.98

    own = layers._waves
    monkeypatch.setattr(layers, "_waves", waves)
    with pytest.raises(StageError, match="does not compute what the model does: logits: ") as found:
        exported(zoo()["fnet", "fill-mask"], tmp_path / "out")
    assert found.value.failure == "EXPORT"


def test_one_wrong_weight_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import numpy_helper

    def spoil(graph: Any, _folder: Path) -> None:
        weight = next(one for one in graph.graph.initializer if "LayerNorm.bias" in one.name)
        wrong = numpy_helper.to_array(weight) + 0.1
        weight.CopyFrom(numpy_helper.from_array(wrong, weight.name))

    monkeypatch.setattr(tracing, "fold_transposes", spoil)
    with pytest.raises(StageError, match="does not compute what the model does: logits: "):
        exported(zoo()["bert", "fill-mask"], tmp_path / "out")


def test_a_model_that_runs_only_as_it_was_traced_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> Any:
        raise TypeError("it takes tuples only")

    monkeypatch.setattr(originals, "_run", fails)
    found = exported(zoo()["bert", "fill-mask"], tmp_path / "out")
    assert found["parts"] == {
        ".": {"model": "as traced", "unchanged": "TypeError", "attention": "sdpa"}
    }


def test_a_large_model_has_left_the_memory_when_its_graph_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules: list[Any] = []

    def loaded(*given: Any) -> Any:
        model, checkpoint = load_model(*given)
        modules.append(weakref.ref(model))
        return model, checkpoint

    def rows_of(*given: Any) -> Any:
        assert [one() for one in modules] == [None]
        return compare_rows(*given)

    load_model, compare_rows = load.load, compared.rows
    monkeypatch.setattr(load, "load", loaded)
    monkeypatch.setattr(compared, "rows", rows_of)
    monkeypatch.setattr(compared, "LARGE", 1)
    found = exported(zoo()["bert", "fill-mask"], tmp_path / "out")
    assert found["parts"] == {".": {"model": "unchanged", "attention": "sdpa"}}


def test_a_model_that_draws_random_numbers_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(originals.NEVER, "bert", "it draws random numbers")
    found = exported(zoo()["bert", "fill-mask"], tmp_path / "out")
    assert found == {"not": "it draws random numbers"}


def test_a_model_that_pytorch_cannot_run_on_a_step_is_not_compared(tmp_path: Path) -> None:
    found = exported(zoo()["nllb-moe", "text2text-generation-with-past"], tmp_path / "out")
    assert list(found) == ["not"]
    assert found["not"].startswith("PyTorch cannot run the model on its samples: Incorrect 4D")


def test_what_an_image_gives_feeds_the_language_model(tmp_path: Path) -> None:
    exported(zoo()["llava", "image-text-to-text"], tmp_path / "out")
    record = composition.read(tmp_path / "out")
    assert record
    assert [one.name for one in record.components] == ["vision", "language"]
    (link,) = record.links
    assert (link.output, link.input) == ("vision/image_features", "language/image_features")
    facts = json.loads((tmp_path / "out" / "composition.json").read_text("utf-8"))
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

    from workers.optimum_engine.architectures import layers

    for length in (8, 16):
        states = torch.randn(3, length, 5)
        wanted = LongformerSelfAttention._chunk(states, 4)
        assert torch.equal(layers.chunk(None, states, 4), wanted)


def test_predicted_streams_see_what_transformers_shows_them() -> None:
    import torch
    from transformers.models.prophetnet.modeling_prophetnet import ngram_attention_bias

    from workers.optimum_engine.architectures import layers

    for length, streams in ((5, 2), (7, 3)):
        wanted = ngram_attention_bias(length, streams, "cpu", torch.float32)
        found = layers.bias(length, streams, "cpu", torch.float32)
        assert torch.equal(found, wanted + 0.0)


def test_the_name_of_a_backbone_gives_way_to_its_configuration() -> None:
    from workers.sources.source import configured

    backbone = {"model_type": "resnet", "depths": [1, 1, 1, 1]}
    config = {"use_timm_backbone": False, "backbone_config": backbone}
    found = configured("conditional_detr", config)
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
    configured = Project(tmp_path, {"MODELMILL_ENGINE": "optimum", "PYTHONPATH": path})
    ran = configured.run("sweep", "ring.toml", "--target", "mlas_cpu", "--stamp", "one")
    assert ran.code == 0, ran
    assert configured.statuses("one") == {"published": 1}

"""The weights of an export are those of its checkpoint, or it fails and says which are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.sources import folder_source, policy
from workers.engine import Request, StageError, StageJob
from workers.optimum_engine import OptimumEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
Tensors = dict[str, Any]


def saved(folder: Path, kind: str = "BertForSequenceClassification", **more: Any) -> Path:
    """A tiny model as Transformers saves it."""
    import torch
    import transformers

    torch.manual_seed(3)
    model_class = getattr(transformers, kind)
    model_class(model_class.config_class(**{**SIZES, **more})).save_pretrained(folder)
    return folder


def changed(folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    return folder


def export(
    folder: Path, out: Path, task: str = "text-classification", **changes: Any
) -> dict[str, Any]:
    """The facts of its export about weights."""
    model = {"id": "tiny/one", "task": task, "source": folder_source(folder), **changes}
    request = Request(model, {"label": "mlas_cpu"}, policy())
    engine = OptimumEngine()
    spec = engine.plan(request).stages[0]
    out.mkdir()
    facts = engine.run(StageJob("export", spec.params, request, {}, out)).facts
    return dict(facts["weights"])


def without(*parts: str) -> Callable[[Tensors], Tensors]:
    return lambda found: {
        name: one for name, one in found.items() if not any(part in name for part in parts)
    }


def test_all_weights_come_from_the_source(tmp_path: Path) -> None:
    facts = export(saved(tmp_path / "model"), tmp_path / "out")
    assert facts == {"from_source": 1.0, "new": [], "ignored": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: {}, "lacks 41 of the model's 41 tensors"),
        (
            lambda found: {f"mine.{name}": one for name, one in found.items()},
            "lacks 41 of the model's 41 tensors",
        ),
        (without("layer.1.output"), "lacks 4 of the model's 41 tensors"),
        (without("layer.0.attention.self.query.bias"), "self.query.bias"),
    ],
    ids=["empty", "renamed", "a layer", "one bias"],
)
def test_a_checkpoint_without_the_body_fails(
    change: Callable[[Tensors], Tensors], words: str, tmp_path: Path
) -> None:
    folder = changed(saved(tmp_path / "model"), change)
    with pytest.raises(StageError, match="the checkpoint lacks") as raised:
        export(folder, tmp_path / "out", new_head=True)
    assert words in str(raised.value)
    assert raised.value.failure == "EXPORT"
    assert "\n" not in str(raised.value)


def test_a_new_prefix_is_named_in_the_next_step(tmp_path: Path) -> None:
    folder = changed(
        saved(tmp_path / "model"),
        lambda found: {f"mine.{name}": one for name, one in found.items()},
    )
    with pytest.raises(StageError) as raised:
        export(folder, tmp_path / "out")
    assert "mine.bert.embeddings" in raised.value.hint
    assert "save_pretrained" in raised.value.hint


def test_a_missing_head_fails_unless_it_is_to_be_new(tmp_path: Path) -> None:
    folder = changed(saved(tmp_path / "model"), without("classifier"))
    with pytest.raises(StageError, match="no weights for the model's head") as raised:
        export(folder, tmp_path / "one")
    assert "classifier.bias, classifier.weight" in str(raised.value)
    assert 'new_head = "why"' in raised.value.hint
    facts = export(folder, tmp_path / "two", new_head=True)
    assert facts["new"] == ["classifier.bias", "classifier.weight"]
    assert 0.9 < facts["from_source"] < 1.0


def test_a_head_of_another_task_is_new_and_the_old_one_is_ignored(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "BertForMaskedLM")
    with pytest.raises(StageError, match=r"bert\.pooler\.dense\.bias"):
        export(folder, tmp_path / "one")
    facts = export(folder, tmp_path / "two", new_head=True)
    assert "bert.pooler.dense.weight" in facts["new"]
    assert facts["ignored"] > 0


def test_what_no_output_needs_may_be_missing(tmp_path: Path) -> None:
    folder = changed(saved(tmp_path / "model", "BertModel"), without("pooler"))
    facts = export(folder, tmp_path / "out", "feature-extraction")
    assert facts == {"from_source": 1.0, "new": [], "ignored": 0}


def test_what_only_training_needs_may_be_missing(tmp_path: Path) -> None:
    config = {
        **SIZES, "conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3],
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
    }  # fmt: skip
    folder = saved(tmp_path / "model", "Wav2Vec2ForCTC", **config)
    changed(folder, without("masked_spec_embed"))
    facts = export(folder, tmp_path / "out", "automatic-speech-recognition")
    assert facts == {"from_source": 1.0, "new": [], "ignored": 0}


def test_tensors_of_other_shapes_fail(tmp_path: Path) -> None:
    import torch

    def other(found: Tensors) -> Tensors:
        return {**found, "classifier.weight": torch.zeros(5, 16)}

    folder = changed(saved(tmp_path / "model"), other)
    with pytest.raises(StageError, match=r"1 tensors .*other shapes.*classifier\.weight"):
        export(folder, tmp_path / "out", new_head=True)


def test_layers_that_the_configuration_leaves_out_fail(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}), "utf-8")
    with pytest.raises(StageError, match=r"layers that its config.json leaves out.*layer\.1\."):
        export(folder, tmp_path / "out")


def test_tied_weights_and_others_besides_are_fine(tmp_path: Path) -> None:
    import torch

    folder = saved(tmp_path / "model", "BertForMaskedLM")
    extra = {"optimizer.step": torch.zeros(1), "teacher.weight": torch.zeros(3)}
    changed(folder, lambda found: {**without("cls.predictions.decoder")(found), **extra})
    facts = export(folder, tmp_path / "out", "fill-mask")
    assert facts == {"from_source": 1.0, "new": [], "ignored": 2}


def test_old_names_of_tensors_are_known(tmp_path: Path) -> None:
    def old(found: Tensors) -> Tensors:
        names = {
            name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            )
            for name in found
        }
        return {names[name]: one for name, one in found.items()}

    facts = export(changed(saved(tmp_path / "model"), old), tmp_path / "out")
    assert facts == {"from_source": 1.0, "new": [], "ignored": 0}


def test_statistics_of_the_training_are_weights(tmp_path: Path) -> None:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    folder = saved(tmp_path / "model", "ResNetForImageClassification", **sizes)
    changed(folder, without("embedder.normalization.running_mean"))
    with pytest.raises(StageError, match=r"lacks 1 of .*running_mean"):
        export(folder, tmp_path / "out", "image-classification")


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    from transformers import BertForSequenceClassification

    whole = BertForSequenceClassification.from_pretrained(saved(tmp_path / "whole"))
    folder = tmp_path / "model"
    whole.save_pretrained(folder, max_shard_size="8KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    facts = export(folder, tmp_path / "out")
    assert facts == {"from_source": 1.0, "new": [], "ignored": 0}


def test_pickled_weights_are_counted_too(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder = saved(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(without("layer.1.")(tensors), folder / "pytorch_model.bin")
    with pytest.raises(StageError, match="pickles"):
        export(folder, tmp_path / "one")
    with pytest.raises(StageError, match="the checkpoint lacks 16 of"):
        export(folder, tmp_path / "two", allow={"pickle": True})


def test_random_models_have_no_weights_of_a_source(tmp_path: Path) -> None:
    source = {"kind": "random", "ref": "bert", "seed": 4, "config": SIZES}
    facts = export(tmp_path, tmp_path / "out", source=source)
    assert facts == {"from_source": 0.0, "seed": 4}

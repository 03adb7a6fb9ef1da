"""Real samples in builds: padded as users pad, apart in three parts, and told in the facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines import processors
from tests.engines.optimum import plan_catalog
from tests.engines.stages import run_stages
from workers import generation
from workers.build.request import request_for
from workers.engine import Request, StageError
from workers.samples import files, parts
from workers.samples.parts import FIT, JUDGE, PARTS
from workers.sources import runtime

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    # The tools' own deprecations are theirs to mend; the cell's log has them.
    pytest.mark.filterwarnings("default"),
]

BERT = {
    "vocab_size": 800, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip


def request(folder: Path, task: str, target: str = "mlas_cpu", **more: Any) -> Request:
    """The request for a model folder."""
    text = f'[[model]]\nid = "own/model"\ntask = "{task}"\nfolder = "{folder.as_posix()}"\n'
    for key, value in more.items():
        text += f"{key} = {value}\n"
    catalog = folder.parent / "catalog.toml"
    catalog.write_text(text, encoding="utf-8")
    found = plan_catalog("catalog.toml", catalog.parent, precision=("fp32", "w8a16"))
    (cell,) = (one for one in found.cells() if one.target.label == target and one.policy.default)
    return request_for(cell)


def saved(folder: Path, kind: str, model: str, **config: Any) -> Path:
    import torch
    import transformers

    torch.manual_seed(1)
    folder.mkdir(parents=True)
    settings = getattr(transformers, f"{kind}Config")(**config)
    getattr(transformers, model)(settings).save_pretrained(str(folder))
    return folder


def every(root: Path, component: str = "") -> dict[str, list[dict[str, Any]]]:
    return {part: files.load(root / "inputs", component, part) for part in PARTS}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Mapping[str, Any]]:
    """A quantized text classifier with a tokenizer: its folder, its stages, what they told."""
    root = tmp_path_factory.mktemp("bert")
    folder = saved(root / "model", "Bert", "BertForSequenceClassification", **BERT)
    processors.wordpiece(folder)
    told = run_stages(request(folder, "text-classification", "qnn_npu"), root / "out")
    return folder, root / "out", told


def test_a_model_with_a_tokenizer_gets_padded_texts(
    bert: tuple[Path, Path, Mapping[str, Any]],
) -> None:
    _folder, out, told = bert
    assert told["inputs"]["samples"] | {"digest": ""} == {
        "kind": "processor",
        "origin": "the model's tokenizer on packaged texts",
        "parts": {"fit": 64, "choose": 8, "judge": 16},
        "digest": "",
    }
    assert {one["kind"] for one in told["inputs"]["inputs"]["."].values()} == {"processor"}
    sets = every(out)
    for part in PARTS:
        lengths = {int(one["attention_mask"].sum()) for one in sets[part]}
        assert len(lengths) > 3  # of several lengths
        assert min(lengths) < 32
        assert any(one["token_type_ids"].any() for one in sets[part])
        for one in sets[part]:  # padding is a token of its own
            assert not one["input_ids"][one["attention_mask"] == 0].any()
            assert one["input_ids"][0, 0] == 2
    digests = [parts.digest([one]) for part in PARTS for one in sets[part]]
    assert len(set(digests)) == len(digests) == 88


def test_a_quantized_graph_does_not_ignore_its_mask(
    bert: tuple[Path, Path, Mapping[str, Any]],
) -> None:
    _folder, out, _told = bert
    float_graph, made = (
        runtime.session(out / stage / "model.onnx") for stage in ("export", "quantize")
    )
    short = [one for one in every(out)[JUDGE] if one["attention_mask"].mean() < 0.5]
    assert short
    for one in short:
        ignored = {**one, "attention_mask": np.ones_like(one["attention_mask"])}
        wanted = runtime.run(float_graph, one)["logits"]
        found = runtime.run(made, one)["logits"]
        other = runtime.run(float_graph, ignored)["logits"]
        assert np.abs(found - wanted).max() < 0.2 * np.abs(other - wanted).max()


def test_other_texts_of_a_users_own(
    bert: tuple[Path, Path, Mapping[str, Any]], tmp_path: Path
) -> None:
    folder, _out, _told = bert
    lines = [f"A sentence of number {number} about the sea." for number in range(20)]
    rows = [json.dumps({"note": one, "label": 1}) for one in lines]
    (folder.parent / "lines.jsonl").write_text("\n".join(rows), encoding="utf-8")
    table = '{ path = "lines.jsonl", columns = { text = "note" } }'
    told = run_stages(request(folder, "text-classification", dataset=table), tmp_path)
    found = told["inputs"]["samples"]
    assert (found["kind"], found["parts"]) == ("dataset", {"fit": 14, "choose": 2, "judge": 4})
    assert found["origin"].startswith("lines.jsonl and the model's tokenizer")
    ids = {tuple(one["input_ids"][0]) for part in every(tmp_path).values() for one in part}
    assert len(ids) == 20


def test_a_dataset_that_no_input_takes(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "Bert", "BertForSequenceClassification", **BERT)
    (tmp_path / "lines.jsonl").write_text(
        "\n".join(json.dumps({"text": str(number)}) for number in range(9)), encoding="utf-8"
    )
    asked = request(folder, "text-classification", dataset='{ path = "lines.jsonl" }')
    with pytest.raises(StageError, match=r"no input of the model takes the texts of the dataset"):
        run_stages(asked, tmp_path / "out")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    small = {**BERT, "vocab_size": 200}
    folder = saved(tmp_path / "model", "Bert", "BertForSequenceClassification", **small)
    processors.wordpiece(folder)
    with pytest.raises(StageError, match="makes the token 799, but the model has 200 tokens"):
        run_stages(request(folder, "text-classification"), tmp_path / "out")


def test_a_tokenizer_of_formulas_makes_no_texts(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "Bert", "BertModel", **BERT)
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"cCNOSPFnos()=#123456789.>",
        "Cl",
        "Br",
    ]
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8", newline="\n")
    told = run_stages(request(folder, "feature-extraction"), tmp_path / "out")
    assert told["inputs"]["samples"]["kind"] == "synthetic"
    assert "does not know" in str(told["inputs"]["notice"])


def test_the_prompt_that_is_verified_is_in_no_part(tmp_path: Path) -> None:
    config = {"vocab_size": 700, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    folder = saved(tmp_path / "model", "GPT2", "GPT2LMHeadModel", **config)
    processors.byte_pairs(folder, chat=False)
    asked = request(folder, "text-generation-with-past")
    told = run_stages(asked, tmp_path / "out")
    assert told["inputs"]["samples"]["kind"] == "processor"
    assert told["inputs"]["samples"]["parts"] == {"fit": 32, "choose": 4, "judge": 8}
    verified = files.sample(tmp_path / "out" / "export" / generation.FILE)["prompt"].tolist()
    assert 1 < len(verified) <= 8
    begun = every(tmp_path / "out", "prefill")
    for part in PARTS:
        for one in begun[part]:
            mask = one["attention_mask"][0] > 0
            assert mask.tolist() == sorted(mask.tolist())  # padding is before the text
            assert one["input_ids"][0][mask].tolist() != verified
    steps = every(tmp_path / "out", "decode")
    assert [len(steps[part]) for part in PARTS] == [4 * 32, 4, 8]
    digests = [parts.digest([one]) for part in PARTS for one in steps[part]]
    assert len(set(digests)) == len(digests)
    assert steps[FIT][0]["past_key_values.0.key"].any()


def test_the_towers_of_a_composite_see_pictures_and_captions(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not on this machine")
    text = {**BERT, "eos_token_id": 3, "bos_token_id": 2, "pad_token_id": 0}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 32, "patch_size": 8}  # fmt: skip
    folder = saved(
        tmp_path / "model", "CLIP", "CLIPModel", text_config=text, vision_config=vision,
        projection_dim=16,
    )  # fmt: skip
    processors.wordpiece(folder)
    processors.processor(
        folder, "CLIPImageProcessor", size={"shortest_edge": 32},
        crop_size={"height": 32, "width": 32},
    )  # fmt: skip
    asked = replace(request(folder, "zero-shot-image-classification"))
    told = run_stages(asked, tmp_path / "out")
    assert told["inputs"]["samples"]["kind"] == "processor"
    components = list(told["inputs"]["inputs"])
    assert len(components) == 2
    for name in components:
        sets = every(tmp_path / "out", name)
        digests = [parts.digest([one]) for part in PARTS for one in sets[part]]
        assert len(set(digests)) == len(digests)
        for one in sets[JUDGE]:
            if "pixel_values" in one:
                assert one["pixel_values"].min() < 0

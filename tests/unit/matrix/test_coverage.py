"""What is said of an entry before anything is downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from matrix.abilities import Abilities, abilities_of, aliases, rules
from matrix.catalog import load_catalog
from matrix.coverage import (
    MEASURED,
    VERIFIED,
    Coverage,
    Verdict,
    builds,
    cover,
    heads,
    measured,
    proven,
    spelled,
)
from matrix.model import Model, Overrides, Source, SourceKind
from tests.bench import coverage
from tests.plans.models import TARGETS, write


def entry(task: str, architecture: str, kind: SourceKind = SourceKind.HUB, **more: Any) -> Model:
    return Model(
        id="org/name", task=task, source=Source(kind, "org/name"), model_type=architecture, **more
    )


def told(task: str, architecture: str, config: Mapping[str, Any] | None = None) -> Coverage:
    return cover(entry(task, architecture), "optimum", config)


def optimum() -> Abilities:
    found = abilities_of("optimum")
    assert found
    return found


def test_a_model_that_the_exporter_has_builds() -> None:
    assert told("fill-mask", "bert") == Coverage(Verdict.BUILDS, "bert", "fill-mask")


@pytest.mark.parametrize(
    "name", ["xlm_roberta", "XLM-RoBERTa", " xlm-roberta ", "XLMRobertaConfig"]
)
def test_a_table_may_spell_a_model_type_its_own_way(name: str) -> None:
    assert told("fill-mask", name) == Coverage(Verdict.BUILDS, "xlm-roberta", "fill-mask")


def test_no_two_model_types_differ_in_their_spelling_alone() -> None:
    assert [spelled(name.upper().replace("_", "-")) for name in heads()] == [*heads()]


@pytest.mark.parametrize(
    ("task", "architecture", "graph"),
    [
        ("text-ranking", "bert", "text-classification"),
        ("translation", "marian", "text2text-generation-with-past"),
        ("translation", "encoder-decoder", "text2text-generation"),  # it has no cache
        ("summarization", "gpt2", "text-generation-with-past"),
        ("text-generation", "t5", "text2text-generation"),
        ("table-question-answering", "bart", "text2text-generation-with-past"),
        ("sentence-similarity", "bert", "feature-extraction"),
        ("tabular-classification", "roberta", "text-classification"),
        ("reinforcement-learning", "qwen2", "text-generation"),
        ("document-question-answering", "layoutlmv3", "question-answering"),
        ("document-question-answering", "vision-encoder-decoder", "image-to-text"),
        ("any-to-any", "qwen2", "text-generation-with-past"),
        ("any-to-any", "qwen3_vl", "image-text-to-text"),
        ("video-text-to-text", "smolvlm", "image-text-to-text"),
        ("causal-lm", "gpt2", "text-generation"),
    ],
)
def test_a_task_with_the_graph_of_another_one(task: str, architecture: str, graph: str) -> None:
    found = told(task, architecture)
    assert (found.verdict, found.task) == (Verdict.BUILDS_AS, graph)
    assert found.why


def test_a_task_of_its_own_is_not_built_as_another() -> None:
    found = told("reinforcement-learning", "decision_transformer")
    assert found.task == "reinforcement-learning"


def test_the_nearest_that_builds_is_named() -> None:
    found = told("image-feature-extraction", "univnet")
    assert found.verdict is Verdict.EXPORTER
    nearest = found.nearest.removesuffix(":feature-extraction")
    assert "image-classification" in heads()[nearest]
    assert builds(nearest, "feature-extraction", optimum())


def test_a_package_is_told_unless_the_config_does_without() -> None:
    found = told("object-detection", "detr")
    assert (found.verdict, found.extra) == (Verdict.PACKAGE, "vision")
    assert found.hint == "it is in the extra vision"
    assert told("object-detection", "detr", {"use_timm_backbone": True}) == found
    without = told("object-detection", "detr", {"use_timm_backbone": False})
    assert without.verdict is Verdict.BUILDS


@pytest.mark.parametrize(
    ("task", "architecture", "why"),
    [
        ("tabular-classification", "sklearn", "pickles"),
        ("tabular-classification", "extra_trees", "pickles"),
        ("tabular-regression", "svm", "a pickle of scikit-learn"),
        ("tabular-regression", "unknown", "pickles"),
        ("reinforcement-learning", "unknown", "agents"),
        ("reinforcement-learning", "stable-baselines3", "agents"),
        ("text-to-image", "stable-diffusion", "Diffusers"),
        ("text-generation", "gguf", "another runtime"),
        ("image-classification", "bert", "no head of bert"),
        ("fil-mask", "bert", "unknown task 'fil-mask'"),
        ("", "bert", "needs a task"),
    ],
)
def test_what_cannot_be_an_onnx_model_here(task: str, architecture: str, why: str) -> None:
    found = told(task, architecture)
    assert found.verdict is Verdict.IMPOSSIBLE
    assert why in found.why
    assert found.hint


def test_what_the_zoo_cannot_show_is_not_promised() -> None:
    for task, architecture in (
        ("text-to-audio", "vits"),
        ("text-generation-with-past", "bart"),
        ("feature-extraction-with-past", "gpt2"),
    ):
        found = told(task, architecture)
        assert found.verdict is Verdict.UNKNOWN
        assert found.why.startswith("not in the zoo: ")


def test_a_decoder_with_its_cache_builds() -> None:
    for task, architecture in (
        ("text-generation-with-past", "gpt2"),
        ("text2text-generation-with-past", "bart"),  # with its encoder
    ):
        assert told(task, architecture).verdict is Verdict.BUILDS


def test_the_code_of_a_repository_is_told() -> None:
    assert told("text-generation", "phi3_v").verdict is Verdict.CODE
    config = {"model_type": "mine", "auto_map": {"AutoModel": "modeling.Mine"}}
    assert told("text-generation", "unknown", config).verdict is Verdict.CODE
    allowed = entry("text-generation", "mine", remote_code=True)
    assert cover(allowed, "optimum", config).verdict is Verdict.UNKNOWN


def test_the_config_knows_better_than_the_entry() -> None:
    assert told("fill-mask", "vit", {"model_type": "bert"}).verdict is Verdict.BUILDS
    assert told("fill-mask", "bert", {"model_type": 7}).architecture == "bert"
    assert told("fill-mask", "unknown").verdict is Verdict.UNKNOWN


def test_what_needs_no_exporter_and_what_is_skipped() -> None:
    ready = Model("a/b", "whatever", Source(SourceKind.HUB, "a/b", file="model.onnx"))
    assert cover(ready, "optimum").verdict is Verdict.BUILDS
    skipped = entry("fill-mask", "bert", overrides=Overrides(skip="not yet"))
    assert cover(skipped, "optimum") == Coverage(Verdict.SKIPPED, "bert", why="not yet")
    assert cover(entry("fill-mask", "bert"), "mine").verdict is Verdict.UNKNOWN


def test_plans_mark_what_cannot_be_built_and_name_the_task_that_is_exported(
    tmp_path: Path,
) -> None:
    rows = [("ranker", "text-ranking", "bert"), ("odder", "keypoint-matching", "superglue")]
    rows += [("odd", "text-generation", "unknown"), ("plain", "causal-lm", "gpt2")]
    text = "".join(
        f'[[model]]\nid = "a/{name}"\ntask = "{task}"\nmodel_type = "{architecture}"\n'
        for name, task, architecture in rows
    )
    found = load_catalog(write(tmp_path, text), base=tmp_path, targets=TARGETS, engine="optimum")
    ranker, odder, odd, plain = found.models
    assert ranker.exported_as == "text-classification"
    assert odder.overrides.skip
    assert odder.overrides.skip.startswith("cannot be built: the sizes of its tensors depend")
    assert (odd.overrides.skip, odd.exported_as) == (None, "")
    assert plain.exported_as == ""  # the exporter's own name
    why = aliases()["text-ranking"].why
    assert found.notices == (f"text-ranking is exported for text-classification: {why} (1 model)",)


def test_the_rules_speak_of_tasks_and_architectures_that_exist() -> None:
    table = optimum()
    for task, alias in aliases().items():
        assert all(table.knows(graph) for graph in alias.graphs), task
    for row in rules()["fault"]:
        assert row["architectures"]
        for architecture in row["architectures"]:
            assert set(row["tasks"]) <= set(table.architectures[architecture]), row
    for row in rules()["unproven"]:
        assert set(row.get("architectures", ())) <= set(table.architectures), row
    for row in rules()["package"]:
        assert set(row["architectures"]) <= set(table.architectures), row
    for row in rules()["foreign"]:
        assert not set(row["words"]) & set(heads()), row


def test_every_pair_that_is_said_to_build_is_in_the_zoo() -> None:
    zoo = load_catalog("zoo", base=Path.cwd(), targets=TARGETS)
    there = {(model.source.ref, model.task) for model in zoo.models}
    table = optimum()
    claimed = {
        (architecture, task)
        for architecture, tasks in table.architectures.items()
        for task in tasks
        if builds(architecture, task, table)
    }
    assert claimed == there


def test_all_of_the_zoo_is_buildable() -> None:
    zoo = load_catalog("zoo", base=Path.cwd(), targets=TARGETS)
    for model in zoo.models:
        config = {"model_type": model.source.ref, **model.source.config}
        assert cover(model, "optimum", config).verdict is Verdict.BUILDS, model.name


def test_the_page_of_the_zoo_is_what_was_measured() -> None:
    """Where it is not: `python -m tests.bench.coverage` writes it anew."""
    text = coverage.PAGE.read_text("utf-8")
    assert text == coverage.page(coverage.known())
    assert len(text.split()) <= 900
    assert MEASURED.read_text("ascii") == coverage.text_of(coverage.known())


def test_the_zoo_is_verified_but_for_few() -> None:
    told = measured()["optimum"]
    for target, least in (("mlas_cpu", 0.95), ("qnn_npu", 0.83)):
        found = list(told[target].values())
        assert len(found) > 200
        assert found.count(VERIFIED) >= least * len(found)
        wrong = [one for one in found if one.endswith("failed")]
        assert len(wrong) <= 0.01 * len(found)


def test_results_are_read_from_the_output_of_sweeps() -> None:
    parity = (
        "VERIFY parity failed: logits: signal-to-noise ratio 14.5 dB against the export (limit 15)"
        "; other: signal-to-noise ratio 9 dB against the export (limit 15)"
    )
    decisions = "VERIFY parity failed: logits: 96.3% of 27 decisions agree with the export"
    lines = [
        "[ 1/50] published      zoo/bert:fill-mask@mlas_cpu  0.6s  280.1 kB",
        f"[ 2/50] verify_failed  zoo/bert:fill-mask@qnn_npu  {parity}",
        f"[ 3/50] verify_failed  zoo/phimoe:text-generation@qnn_npu  {decisions}",
        "[ 4/50] verify_failed  zoo/dac:feature-extraction@mlas_cpu  VERIFY samples failed: no",
        "[ 5/50] build_failed   zoo/rt_detr:object-detection@qnn_npu  DISK a blob cannot be read",
        "[ 6/50] cancelled      zoo/vit:image-classification@qnn_npu  ",
        "sweep zoo1: 6 cells",
    ]
    assert coverage.results(lines, "optimum") == {
        ("optimum", "mlas_cpu", "bert", "fill-mask"): VERIFIED,
        ("optimum", "qnn_npu", "bert", "fill-mask"): "9.0 dB",
        ("optimum", "qnn_npu", "phimoe", "text-generation"): "96.3% agree",
        ("optimum", "mlas_cpu", "dac", "feature-extraction"): "samples",
    }


def test_an_engine_without_a_table_builds_what_it_has_built_of_the_zoo() -> None:
    assert cover(entry("fill-mask", "bert"), "winml").verdict is Verdict.BUILDS
    assert proven("bert", "fill-mask", "winml")["mlas_cpu"] == VERIFIED
    other = cover(entry("text-generation", "bert"), "winml")
    assert other.verdict is Verdict.UNKNOWN
    assert "has not built a tiny model" in other.why
    assert "no table" in cover(entry("fill-mask", "bert"), "ours").why
    assert proven("bert", "fill-mask", "ours") == {}


def test_the_tables_are_plain_json() -> None:
    assert all(isinstance(tasks, tuple) for tasks in heads().values())
    assert json.dumps(rules())


def test_every_head_of_transformers_builds_or_has_a_reason_of_its_own() -> None:
    general = "the exporter does not have"
    for architecture, tasks in heads().items():
        for task in tasks:
            found = told(task, architecture)
            assert found.verdict in {Verdict.BUILDS, Verdict.BUILDS_AS} or found.why, architecture
            assert general not in found.why, (architecture, task)

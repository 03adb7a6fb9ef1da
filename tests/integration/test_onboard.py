"""`modelmill onboard` and `modelmill review` as users type them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from flows.onboard import folder as files
from flows.onboard.folder import markdown
from machine.files import hash_file
from matrix.digest import FileEntry, tree_digest
from tests.engines.sources import write_safetensors
from tests.sweeps.command import Project

pytestmark = pytest.mark.engine

FEW = ("--warmup", "1", "--iterations", "20", "--sessions", "2")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.env |= {"MODELMILL_MACHINE": str(tmp_path / "machine"), "MODELMILL_RUNTIMES": "none",
                 "MODELMILL_ENGINE": "optimum"}  # fmt: skip
    return made


def test_an_architecture_that_nobody_knows_says_what_got_in_the_way(project: Project) -> None:
    model = project.folder / "weird"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "quasarnet"}', encoding="utf-8")
    write_safetensors(model / "model.safetensors")
    ran = project.run("onboard", "weird", "--task", "fill-mask", "--target", "mlas_cpu")
    assert ran.code == 1, ran
    report = (project.folder / "onboarding" / "weird" / "report.md").read_text("utf-8")
    for text in (ran.out, report.partition("## 9. What got in the way")[2].replace("\\", "")):
        assert "blocked by a tool: mlas_cpu: export: the installed Transformers has no" in text
        assert "coverage needs-remote-code: " in text
        assert "set remote_code in the catalog, or give a ready ONNX file as onnx" in text


def test_a_model_is_onboarded_and_its_folder_is_approved_until_it_is_spoiled(
    project: Project,
) -> None:
    tokens = np.random.default_rng(1).integers(5, 100, (6, 1, 8))
    masks: Any = {"attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
    np.savez(project.folder / "eval.npz", input_ids=tokens, **masks)
    ran = project.run(
        "onboard", "demo/bert-tiny", "--catalog", "demo", "--target", "mlas_cpu", "--target",
        "ov_cpu", "--dataset", "eval.npz", "--metric", "agreement", "--dest", "proof", "--json",
        *FEW,
    )  # fmt: skip
    assert ran.code == 0, ran
    record = ran.json()
    assert [(one["goal"], one["verdict"]) for one in record["tiers"]] == [
        ("L0", "pass"), ("L1", "pass"), ("L2", "pass"), ("L3", "pass"),
    ]  # fmt: skip
    assert (record["effort"], record["goal"]) == ("first entry", "L3")
    assert record["tiers"][2]["numbers"]["source"]["parts"]["."]["model"] == "unchanged"
    assert "## 9. What got in the way" in (project.folder / "proof" / "report.md").read_text()

    # How fast a busy machine measures is not the point here.
    answer = project.run("review", "proof", "--json").json()
    assert answer["answer"] in {"approve", "request changes"}
    assert all(" takes " in one["text"] for one in answer["objections"])
    assert {
        "mlas_cpu builds to the same bytes",
        "the export computes what its source model does",
        "mlas_cpu is sound",
        "ov_cpu builds to the same bytes",
        "ov_cpu is sound",
    } <= set(answer["checked"])

    shutil.copytree(project.folder / "proof", project.folder / "forged")
    forge(project.folder / "forged", "ov_cpu")
    forged = project.run("review", "forged", "--json")
    assert forged.code == 6, forged
    found = forged.json()["objections"]
    (text,) = [one["text"] for one in found if one["answer"] == "reject"]
    assert text.startswith("ov_cpu builds other bytes here: ")

    path = project.folder / "proof" / "onboarding.json"
    data = json.loads(path.read_text())
    data["packages"][0]["tree"] = "0" * 64
    path.write_text(json.dumps(data))
    spoiled = project.run("review", "proof")
    assert spoiled.code == 6
    assert "REJECT: proof" in spoiled.out


def forge(folder: Path, target: str) -> None:
    """Change the weights of a package, and all digests with them."""
    place = folder / "packages" / target
    model = onnx.load(place / "model.onnx")
    for weight in model.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT and len(weight.dims) == 2:
            weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), weight.name))
    onnx.save(model, place / "model.onnx")
    manifest = json.loads((place / "modelmill.json").read_text())
    for file in manifest["files"]:
        file["sha256"], file["size"] = hash_file(place / file["path"])
    (place / "modelmill.json").write_text(json.dumps(manifest))
    inside = [
        FileEntry(name.removeprefix(f"packages/{target}/"), file.size, file.sha256)
        for name, file in files.listed(folder).items()
        if name.startswith(f"packages/{target}/")
    ]
    tree, evidence = tree_digest(inside), f"evidence/build-{target}.json"
    told = json.loads((folder / evidence).read_text())
    files.put(folder, evidence, {**told, "tree": tree})
    if (folder / f"evidence/bench-{target}.json").exists():
        bench = json.loads((folder / f"evidence/bench-{target}.json").read_text())
        bench["artifact"]["tree"] = tree
        files.put(folder, f"evidence/bench-{target}.json", bench)
    record = files.read(folder)
    packages = tuple(
        replace(one, tree=tree) if one.target == target else one for one in record.packages
    )
    record = replace(record, packages=packages, files=files.listed(folder))
    (folder / files.REPORT).write_text(markdown(record), "utf-8")
    files.put(folder, files.RECORD, record)


def test_a_model_that_cannot_be_built_reaches_no_goal(project: Project) -> None:
    (project.folder / "empty").mkdir()
    (project.folder / "empty" / "config.json").write_text('{"model_type": "no_such_net"}')
    ran = project.run(
        "onboard", "empty", "--task", "fill-mask", "--target", "mlas_cpu", "--json", *FEW
    )
    assert ran.code == 1
    record = ran.json()
    assert record["effort"] == "more than an exporter"
    assert [one["verdict"] for one in record["tiers"]][1:] == ["not run"] * 3
    assert "stops at L0" in record["finding"]
    assert record["entry"].count("model_type") == 1


def test_an_entry_that_cannot_be_planned_leaves_no_folder(project: Project) -> None:
    ran = project.run("onboard", "our/model", "--task", "no-such-task", "--dest", "proof")
    assert ran.code == 2
    assert "unknown task" in ran.err
    assert not (project.folder / "proof").exists()

"""Compiled cells from the plan to the feed, with the real QNN compiler and its emulated HTP."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from matrix.digest import PROVENANCE
from tests.sweeps.command import Project
from tests.verification.ort_model_package import opened

pytestmark = [pytest.mark.vendor, pytest.mark.engine, pytest.mark.timeout(600)]

CELL = "demo/bert-tiny:text-classification@qnn_npu"
COMPILED = f"{CELL}+htp73"
PACKAGE = "modelmill-demo-bert-tiny"
SWEEP = ("sweep", "demo", "--model", "demo/bert-tiny", "--target", "qnn_npu", "--jobs", "1")
EMULATED = (*SWEEP, "--compile", "htp73", "--emulated")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(
        tmp_path_factory.mktemp("compiled"),
        {"MODELMILL_ENGINE": "optimum", "MODELMILL_RUNTIMES": "qnn"},
    )
    project.ok(*EMULATED, "--stamp", "one")
    project.ok("feed", "pull", PACKAGE, version(project, "one", "htp73"), "--dest", "pulled")
    return project


def version(project: Project, stamp: str, end: str) -> str:
    found = [name for _package, name in project.published() if f"-{stamp}-" in name]
    return next(name for name in found if name.endswith(end) and "export" not in name)


def record(project: Project, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.folder / "pulled" / name).read_bytes())
    return found


def test_it_is_published_beside_the_portable_package_and_names_it_by_digest(swept: Project) -> None:
    assert swept.statuses("one") == {"published": 2}
    portable = swept.published()[PACKAGE, version(swept, "one", "classification")]
    manifest = record(swept, "modelmill.json")
    assert (manifest["cell"], manifest["profile"]["label"]) == (COMPILED, "htp73")
    assert manifest["portable"]["tree"] == portable
    stage = manifest["stages"][-1]
    assert stage["stage"] == "compile"
    assert stage["facts"]["compatibility"]["QNNExecutionProvider"].startswith("v2:")
    (binary,) = stage["facts"]["binaries"]
    assert {"model.onnx", binary} <= {path.name for path in (swept.folder / "pulled").iterdir()}


def test_it_was_run_on_the_provider_that_compiled_it_and_opens_faster(swept: Project) -> None:
    found = record(swept, "build.json")
    assert found["verdict"] == {"level": "parity", "reached": True}
    (runtime,) = found["runtimes"]
    assert (runtime["own"], runtime["ran"], runtime["emulated"]) == (True, True, True)
    assert runtime["options"]["htp_arch"] == "73"
    (opening,) = found["opening"].values()
    assert opening["compiled"]["seconds"] < opening["portable"]["seconds"]
    assert swept.ok("verify", "pulled").out.endswith("level parity: reached\n")


def test_another_stamp_runs_no_stage_and_an_unchanged_one_publishes_nothing(swept: Project) -> None:
    swept.ok(*EMULATED, "--stamp", "two")
    assert not swept.ran("two")
    trees = [swept.published()[PACKAGE, version(swept, stamp, "htp73")] for stamp in ("one", "two")]
    assert trees[0] == trees[1]
    swept.ok(*EMULATED, "--stamp", "three", "--if-changed")
    assert swept.statuses("three") == {"unchanged": 2}


def test_its_stages_are_explained_and_it_is_rebuilt_to_the_same_bytes(swept: Project) -> None:
    told = swept.ok("explain", COMPILED, "--stamp", "one").out
    assert "compile" in told
    rebuilt = swept.run("rebuild", PACKAGE, version(swept, "one", "htp73"))
    assert rebuilt.code == 0, rebuilt


@pytest.mark.parametrize("damage", ["truncated", "swapped", "missing", "escaping"])
def test_a_binary_that_is_not_the_built_one_is_caught(
    swept: Project, tmp_path: Path, damage: str
) -> None:
    package = tmp_path / "package"
    shutil.copytree(swept.folder / "pulled", package)
    (binary,) = package.glob("*.bin")
    if damage == "truncated":
        binary.write_bytes(binary.read_bytes()[:-4096])
    elif damage == "swapped":
        binary.write_bytes(bytes(reversed(binary.read_bytes())))
    elif damage == "missing":
        binary.unlink()
    else:
        model = (package / "model.onnx").read_bytes()
        outside = b"../" + binary.name.encode()[3:]
        (package / "model.onnx").write_bytes(model.replace(binary.name.encode(), outside))
    refused = swept.run("verify", str(package))
    assert refused.code == 1, refused
    assert "is refused: " in refused.err
    # What states nothing of its files is judged by them alone.
    (package / PROVENANCE).unlink()
    ran = swept.run("verify", str(package))
    assert ran.code == 1, ran
    assert "FAIL  integrity" in ran.out


def test_without_leave_for_the_emulator_the_compiled_cell_waits_for_a_machine(
    swept: Project,
) -> None:
    ran = swept.run(*SWEEP, "--compile", "htp73", "--stamp", "four")
    assert swept.statuses("four") == {"published": 1, "planned": 1}
    assert "compile:htp73" in ran.out
    done = swept.ok("resume", "four", "--emulated")
    assert swept.statuses("four") == {"published": 2}, done


def test_the_doctor_says_that_this_machine_compiles_only_with_its_emulator(swept: Project) -> None:
    found = {one["what"]: one for one in swept.run("doctor", "--json").json()}
    told = found["profile htp73"]
    assert "QNNExecutionProvider npu (emulated)" in told["detail"]
    assert "cannot open shared contexts" in told["detail"]
    assert "--emulated" in told["mend"]
    assert "the setting runtimes excludes it" in found["profile ov_cpu"]["detail"]


def test_a_pull_for_a_profile_takes_what_is_compiled_for_it_and_says_so(swept: Project) -> None:
    told = swept.ok("feed", "pull", "--stamp", "one", "--for", "htp73", "--dest", "for-htp73").out
    assert told.endswith(", compiled for htp73\n")
    (folder,) = (swept.folder / "for-htp73" / PACKAGE).iterdir()
    assert folder.name == "qnn_npu+htp73"
    told = swept.ok("feed", "pull", "--stamp", "one", "--for", "htp81", "--dest", "for-htp81").out
    assert told.endswith(", portable: nothing is compiled for htp81\n")
    portable = version(swept, "one", "classification")
    (one,) = swept.ok(
        "feed", "pull", PACKAGE, portable, "--for", "htp73", "--dest", "one", "--json"
    ).json()
    assert (one["version"], one["compiled"]) == (f"{portable}-htp73", True)
    assert swept.run("feed", "pull", PACKAGE, portable, "--for", "ov_npu").code == 2


def test_onnx_runtime_opens_the_variants_of_a_model_as_one_package(swept: Project) -> None:
    words = ("feed", "pull", "--stamp", "one", "--model", "demo/bert-tiny", "--as", "ort-package")
    made = swept.ok(*words, "bert", "--json").json()
    assert made["variants"] == ["qnn_npu+htp73", "qnn_npu"]
    (found,) = opened(swept.folder / "bert").values()
    provider = "QNNExecutionProvider"
    assert found["variants"] == [["qnn_npu+htp73", provider], ["qnn_npu", provider]]
    swept.ok("feed", "verify", "--folder", "bert/qnn_npu+htp73")
    assert swept.run(*words, "bert").code == 2
    assert swept.run("feed", "pull", "--stamp", "one", "--as", "zip", "x").code == 2


def test_the_feed_and_the_report_tell_what_opening_took_on_an_emulator(swept: Project) -> None:
    compiled, portable = version(swept, "one", "htp73"), version(swept, "one", "classification")
    told = swept.ok("feed", "show", PACKAGE, compiled).out
    assert "model.onnx opens in " in told
    assert "measured on an emulator" in told
    opening = swept.ok("feed", "show", PACKAGE, compiled, "--json").json()["opening"]
    assert opening["emulated"] is True
    (model,) = opening["models"]
    assert model["compiled"]["seconds"] < model["portable"]["seconds"]
    assert "opens in" not in swept.ok("feed", "show", PACKAGE, portable).out
    swept.ok("report", "one", "-o", "report.html")
    assert '"opening":{"on":"QNNExecutionProvider npu (emulated)","emulated":true' in (
        swept.folder / "report.html"
    ).read_text("utf-8")


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same sweep without a profile."""
    project = Project(
        tmp_path_factory.mktemp("portable"),
        {"MODELMILL_ENGINE": "optimum", "MODELMILL_RUNTIMES": "qnn"},
    )
    project.ok(*SWEEP, "--stamp", "one")
    return project


AIM = ("--profile", "htp73", "--emulated")


def test_what_a_stamp_has_is_compiled_as_the_sweep_would_have_done_it(
    swept: Project, portable: Project, tmp_path: Path
) -> None:
    compiled = version(swept, "one", "htp73")
    elsewhere = Project(
        tmp_path, {**portable.env, "MODELMILL_FEED": str(portable.feed_folder)}
    )  # knows the feed alone
    elsewhere.ok("compile", "--stamp", "one", *AIM, "--target", "qnn_*")
    assert portable.published()[PACKAGE, compiled] == swept.published()[PACKAGE, compiled]
    assert set(portable.published()) == {
        *swept_versions(swept), ("modelmill-index", "0.0.0-one-r2"),
    }  # fmt: skip
    assert elsewhere.statuses("one") == {"published": 1}
    elsewhere.ok("feed", "pull", PACKAGE, compiled, "--dest", "pulled")
    stated = [record(project, "provenance.json") for project in (swept, elsewhere)]
    recipes = [one["predicate"]["buildDefinition"]["externalParameters"] for one in stated]
    assert recipes[0] == recipes[1]
    # Again: nothing is left to do, and a resume needs no catalog.
    for words in (("compile", "--stamp", "one", *AIM), ("resume", "one")):
        assert "nothing built" in elsewhere.ok(*words).out
    assert elsewhere.run("compile", PACKAGE, compiled, *AIM).code == 2
    other = elsewhere.run("compile", "--stamp", "one", *AIM, "--ep-option", "vtcm_mb=4")
    assert (other.code, "a version never changes" in other.err) == (2, True)


def swept_versions(project: Project) -> set[tuple[str, str]]:
    return {name for name in project.published() if "-one" in name[1]}


def test_a_package_that_was_pulled_is_compiled_without_feed_and_state(
    swept: Project, tmp_path: Path
) -> None:
    swept.ok(
        "feed", "pull", PACKAGE, version(swept, "one", "classification"), "--dest",
        str(tmp_path / "own"),
    )  # fmt: skip
    alone = Project(tmp_path, {"MODELMILL_RUNTIMES": "qnn"})
    words = ("compile", "own", "-o", "out", *AIM)
    (made,) = alone.run(*words, "--json").json()
    assert (made["error"], made["cell"]) == (None, COMPILED)
    assert made["tree"] == swept.published()[PACKAGE, version(swept, "one", "htp73")]
    assert alone.ok("feed", "verify", "--folder", made["output"]).out.startswith("ok")
    assert not alone.home.exists()
    assert "is there already (add --overwrite" in alone.run(*words).err
    assert alone.run("compile", made["output"], "-o", "more", *AIM).code == 2

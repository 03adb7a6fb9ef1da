"""The winml engine in the whole command: what is published, what the state keeps, what fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.status import FailureClass, Status
from state.records import Outcome
from tests.engines.winml import (
    FLAGS,
    OFFLINE,
    PYTHON,
    folder_entry,
    model_folder,
    winml_python,
)
from tests.sweeps.command import Project

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

BERT = "bert:text-classification"
BROKEN = "t5-broken:text2text-generation"


@pytest.fixture(scope="module")
def swept(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A model for every target and, for one, a model that winml-cli cannot build; then again."""
    env = {PYTHON: str(winml_python()), "MODELMILL_JOBS": "1", **OFFLINE}
    project = Project(tmp_path_factory.mktemp("swept"), env)
    entries = [
        f'[[model]]\nid = "{name}"\npriority = "P0"\n'
        + folder_entry(name, model_folder(name, models))
        + '\nsamples = { kind = "synthetic", reason = "random weights in a folder" }\n'
        for name in ("bert", "t5-broken")
    ]
    project.catalog(*entries)
    only = ("--only", "bert:*", "--only", f"{BROKEN}@mlas_cpu")
    for stamp in ("s1", "s2"):
        ran = project.run("sweep", "catalog.toml", "--engine", "winml", "--stamp", stamp, *only)
        assert ran.code == 1, ran
    return project


def cells(project: Project, stamp: str) -> dict[str, Outcome]:
    return {name: one for name, one in project.outcomes(stamp).items() if one.target != "export"}


def test_a_model_that_cannot_be_built_costs_its_cells_and_no_other(swept: Project) -> None:
    found = cells(swept, "s1")
    failed = found.pop(f"{BROKEN}@mlas_cpu")
    assert set(found) == {f"{BERT}@{label}" for label in FLAGS}
    assert {one.status for one in found.values()} == {Status.PUBLISHED}
    assert (failed.status, failed.failure) == (Status.BUILD_FAILED, FailureClass.EXPORT)
    assert failed.message
    assert "\n" not in failed.message
    assert "winml" in failed.message
    assert failed.hint


def test_every_package_is_verified_on_samples_of_its_own(swept: Project) -> None:
    for name, one in cells(swept, "s1").items():
        if name.startswith(f"{BERT}@"):
            assert one.evidence
            rungs = {rung["name"]: rung["passed"] for rung in one.evidence["rungs"]}
            assert (rungs["samples"], rungs["parity"]) == (True, True), name


def test_the_second_sweep_runs_no_stage(swept: Project) -> None:
    assert swept.ran("s1")
    bert = cells(swept, "s2")
    del bert[f"{BROKEN}@mlas_cpu"]
    assert {one.status for one in bert.values()} == {Status.PUBLISHED}
    assert not swept.ran("s2")
    assert {name: one.tree for name, one in bert.items()} == {
        name: one.tree for name, one in cells(swept, "s1").items() if name in bert
    }


def test_equal_bytes_are_stored_and_published_once(swept: Project) -> None:
    with swept.state() as state:
        info = state.find_sweep("s1")
        assert info
        keys = {run.key for run in state.stage_runs(info.id) if run.stage in ("optimize", "export")}
    assert len(keys) == 1 + 6
    held: list[tuple[str, int]] = []
    feed = swept.feed()
    for package in feed.packages():
        for one in feed.versions(package):
            files = feed.files(package, one.version)
            held += [(file.sha256, file.size) for file in files if ".onnx" in file.path]
    distinct = set(held)
    blobs = [path for path in swept.feed_folder.rglob("*") if path.name in dict(distinct)]
    assert len(held) > 2 * len(distinct)
    assert sum(path.stat().st_size for path in blobs) == sum(size for _digest, size in distinct)


def test_what_was_done_is_in_the_state(swept: Project) -> None:
    evidence = cells(swept, "s1")[f"{BERT}@qnn_npu"].evidence
    assert evidence
    facts = {stage["stage"]: stage["facts"] for stage in evidence["stages"]}
    infos = {stage["stage"]: stage["info"] for stage in evidence["stages"]}
    assert list(facts) == ["config", "export", "inputs", "optimize", "quantize"]
    assert facts["optimize"]["analysis"]["unsupported"] == []
    assert facts["quantize"]["applied"]["activations"] == "uint16"
    assert facts["quantize"]["nodes"] > 0
    assert all(info["timings"] for info in infos.values())
    assert infos["quantize"]["warnings"] == []
    applied = cells(swept, "s1")[f"{BERT}@vitisai_npu"].evidence
    assert applied
    assert "quantize" not in {stage["stage"] for stage in applied["stages"]}


def test_a_sweep_without_winml_says_how_to_get_it(swept: Project) -> None:
    one = ("--only", f"{BERT}@mlas_cpu", "--stamp", "none", "--engine", "winml")
    ran = swept.run("sweep", "catalog.toml", *one, MODELMILL_WINML_PYTHON="")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "engine winml is not installed" in ran.err
    assert "modelmill engine install winml" in ran.err


def test_an_interpreter_that_is_not_there_is_one_line(swept: Project) -> None:
    one = ("--only", f"{BERT}@mlas_cpu", "--stamp", "gone", "--engine", "winml")
    ran = swept.run("sweep", "catalog.toml", *one, MODELMILL_WINML_PYTHON="nowhere/python")
    assert ran.code == 2
    assert "engine winml: there is no interpreter" in ran.err
    assert "Traceback" not in ran.err


def test_the_doctor_looks_into_it(swept: Project) -> None:
    ran = swept.run("doctor", "--json")
    found = {one["what"]: one for one in ran.json()}
    assert found["engine winml"]["detail"].startswith("winml 0.4.0, torch 2.")

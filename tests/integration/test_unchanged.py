"""A sweep of what has not changed starts neither a server nor a slot."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from state.records import Kind
from tests.sweeps.command import NOBODY, Project, model

ALL = ("--target", "mlas_cpu", "--target", "qnn_npu")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("swept"))
    made.catalog(model("tiny/a"), model("tiny/b"))
    made.ok("sweep", "catalog.toml", "--stamp", "one", *ALL)
    return made


@pytest.fixture
def project(swept: Project, tmp_path: Path) -> Project:
    """A copy to change."""
    return Project(Path(shutil.copytree(swept.folder, tmp_path / "project")))


def started(project: Project, stamp: str) -> set[str | None]:
    """The models that slots have leased."""
    with project.state() as state:
        info = state.find_sweep(stamp)
        assert info
        leased = state.events(info.id, kind=Kind.LEASED)
    return {one.model for one in leased if not str(one.owner).endswith("/unchanged")}


def test_nothing_is_started_for_an_unchanged_catalog(project: Project) -> None:
    shutil.rmtree(project.home / "prefect", ignore_errors=True)
    lines = project.ok(
        "sweep", "catalog.toml", "--stamp", "two", "--if-changed", "--json", *ALL, plain=False
    ).lines()
    assert not (project.home / "prefect").exists()
    assert started(project, "two") == set()
    assert project.statuses("two") == {"unchanged": 4}
    outcomes = project.outcomes("two")
    assert {one.status.value for one in outcomes.values()} == {"unchanged"}
    assert {one.detail["same_as"] for one in outcomes.values() if one.detail} == {
        version for package, version in project.published() if package != "modelmill-index"
    }
    told = Counter(line["status"] for line in lines if line.get("kind") == "status")
    assert told == {"unchanged": len(outcomes)}
    assert ("modelmill-index", "0.0.0-two") in project.published()


def test_a_model_that_changed_is_left_to_the_slots(project: Project) -> None:
    project.catalog(model("tiny/a"), model("tiny/b", extra='model_type = "bert"\nopset = 18\n'))
    project.ok("sweep", "catalog.toml", "--stamp", "two", "--if-changed", *ALL)
    assert started(project, "two") == {"tiny/b:fill-mask"}
    assert project.statuses("two") == {"unchanged": 2, "published": 2}


def test_an_empty_store_leaves_everything_to_the_slots(project: Project) -> None:
    project.ok("store", "clear")
    project.ok("sweep", "catalog.toml", "--stamp", "two", "--if-changed", *ALL)
    assert started(project, "two") == {"tiny/a:fill-mask", "tiny/b:fill-mask"}
    assert project.statuses("two") == {"unchanged": 4}


def test_a_server_of_the_users_is_shown_every_sweep(project: Project) -> None:
    ran = project.run(
        "sweep", "catalog.toml", "--stamp", "two", "--if-changed", *ALL, PREFECT_API_URL=NOBODY
    )
    assert ran.code == 0, ran
    assert started(project, "two") == {"tiny/a:fill-mask", "tiny/b:fill-mask"}

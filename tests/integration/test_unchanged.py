"""A sweep of what has not changed starts neither a server nor a slot."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from state.records import Kind
from tests.sweeps.command import NOBODY, Mill, model

ALL = ("--target", "mlas_cpu", "--target", "qnn_npu")


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    made = Mill(tmp_path)
    made.catalog(model("tiny/a"), model("tiny/b"))
    made.ok("sweep", "catalog.toml", "--stamp", "one", *ALL)
    return made


def started(mill: Mill, stamp: str) -> set[str | None]:
    """The models that slots have leased."""
    with mill.state() as state:
        info = state.find_sweep(stamp)
        assert info
        leased = state.events(info.id, kind=Kind.LEASED)
    return {one.model for one in leased if not str(one.owner).endswith("/unchanged")}


def test_nothing_is_started_for_an_unchanged_catalog(mill: Mill) -> None:
    shutil.rmtree(mill.home / "prefect", ignore_errors=True)
    lines = mill.ok(
        "sweep", "catalog.toml", "--stamp", "two", "--if-changed", "--json", *ALL, plain=False
    ).lines()
    assert not (mill.home / "prefect").exists()
    assert started(mill, "two") == set()
    assert mill.statuses("two") == {"unchanged": 4}
    outcomes = mill.outcomes("two")
    assert {one.status.value for one in outcomes.values()} == {"unchanged"}
    assert {one.detail["same_as"] for one in outcomes.values() if one.detail} == {
        version for package, version in mill.published() if package != "modelmill-index"
    }
    told = Counter(line["status"] for line in lines if line.get("kind") == "status")
    assert told == {"unchanged": len(outcomes)}
    assert ("modelmill-index", "0.0.0-two") in mill.published()


def test_a_model_that_changed_is_left_to_the_slots(mill: Mill) -> None:
    mill.catalog(model("tiny/a"), model("tiny/b", extra='model_type = "bert"\nopset = 18\n'))
    mill.ok("sweep", "catalog.toml", "--stamp", "two", "--if-changed", *ALL)
    assert started(mill, "two") == {"tiny/b:fill-mask"}
    assert mill.statuses("two") == {"unchanged": 2, "published": 2}


def test_an_empty_store_leaves_everything_to_the_slots(mill: Mill) -> None:
    mill.ok("store", "clear")
    mill.ok("sweep", "catalog.toml", "--stamp", "two", "--if-changed", *ALL)
    assert started(mill, "two") == {"tiny/a:fill-mask", "tiny/b:fill-mask"}
    assert mill.statuses("two") == {"unchanged": 4}


def test_a_server_of_the_users_is_shown_every_sweep(mill: Mill) -> None:
    ran = mill.run(
        "sweep", "catalog.toml", "--stamp", "two", "--if-changed", *ALL, PREFECT_API_URL=NOBODY
    )
    assert ran.code == 0, ran
    assert started(mill, "two") == {"tiny/a:fill-mask", "tiny/b:fill-mask"}

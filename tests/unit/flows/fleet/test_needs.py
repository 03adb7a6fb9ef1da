"""What a model needs and what a machine announces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.cli.resolution import resolve
from flows.fleet.needs import (
    Words,
    from_text,
    groups_of,
    lacking,
    needs_of,
    serves,
    to_text,
    words_here,
)
from flows.fleet.slot import able
from flows.fleet.worker import queue_name
from state.records import StageCost
from tests.sweeps.in_memory import make_plan, small_model

HERE: Words = frozenset({"engine:fake", "os:linux", "memory:16"})


@pytest.mark.parametrize(
    ("needs", "served"),
    [
        ({"engine:fake"}, True),
        ({"engine:winml"}, False),
        ({"engine:fake", "os:windows"}, False),
        ({"engine:fake", "memory:16"}, True),
        ({"engine:fake", "memory:17"}, False),
        ({"engine:fake", "remote-code"}, False),
        (set(), True),
    ],
)
def test_a_machine_serves_what_it_has_every_word_of(needs: set[str], served: bool) -> None:
    assert serves(HERE, needs) is served


def test_code_of_strangers_goes_only_where_it_is_allowed() -> None:
    groups = {
        frozenset({"engine:fake"}): frozenset({"a", "b"}),
        frozenset({"engine:fake", "remote-code"}): frozenset({"c"}),
    }
    assert able(groups, HERE) == {"a", "b"}
    assert able(groups, HERE | {"remote-code"}) == {"a", "b", "c"}
    assert able(groups, frozenset()) == frozenset()


def test_words_survive_their_text_and_rubbish_is_none() -> None:
    assert from_text(to_text(HERE)) == HERE
    for rubbish in (None, "", "{", "7", '"engine:fake"', "The work pool's default queue."):
        assert from_text(rubbish) == frozenset()


def test_like_machines_share_a_queue() -> None:
    assert queue_name(HERE) == queue_name(frozenset(sorted(HERE)))
    assert queue_name(HERE) != queue_name(HERE | {"pickle"})


def test_a_model_needs_what_its_entry_its_sweep_and_its_past_say() -> None:
    planned = small_model("a")
    windows = replace(planned, model=replace(planned.model, needs=("os:windows",)))
    values = {"needs": ("lab",), "allow_remote_code": True, "allow_pickle": False}
    assert needs_of(windows, "winml", values, 10e9) == {
        "engine:winml",
        "os:windows",
        "lab",
        "memory:13",
    }
    strange = replace(planned, model=replace(planned.model, remote_code=True, pickle=True))
    assert needs_of(strange, "fake", values, 0.0) == {"engine:fake", "lab", "remote-code"}
    plan = make_plan(planned, small_model("b"))
    history = [StageCost("b:fill-mask", "export", "", 1, 1.0, 1, int(4e9))]
    assert sorted(map(sorted, groups_of(plan, {}, history))) == [
        ["engine:fake"],
        ["engine:fake", "memory:5"],
    ]


def test_what_the_nearest_machine_lacks() -> None:
    needs = {"engine:fake", "os:windows", "lab"}
    near = frozenset({"engine:fake", "lab"})
    assert lacking([frozenset(), near, HERE], needs) == ["os:windows"]
    assert lacking([], needs) == sorted(needs)


def test_a_machine_announces_what_it_allows(tmp_path: Path) -> None:
    plain = words_here(resolve({"runtimes": ("none",)}, {}, tmp_path), ["fake"], ["lab"])
    assert {"engine:fake", "lab"} <= plain
    assert not {"remote-code", "pickle"} & plain
    assert not [word for word in plain if word.startswith("ep:")]
    flags = {"allow_remote_code": True, "memory": int(40e9), "runtimes": ("qnn",)}
    python = {"MODELMILL_QNN_PYTHON": "there/python", "MODELMILL_OPENVINO_PYTHON": "x"}
    more = words_here(resolve(flags, python, tmp_path), ["fake"])
    assert {"remote-code", "memory:32", "ep:qnn"} <= more
    assert "ep:openvino" not in more

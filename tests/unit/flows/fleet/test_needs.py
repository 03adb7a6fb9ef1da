"""What a model needs and what a machine announces."""

from __future__ import annotations

import pytest

from flows.fleet.needs import Words, from_text, serves, to_text
from flows.fleet.slot import able
from flows.fleet.worker import queue_name

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

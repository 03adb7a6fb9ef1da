"""What cells need of machines and what machines offer."""

from __future__ import annotations

import pytest

from matrix.needs import Words, from_text, lacking, serves, to_text

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


def test_words_survive_their_text_and_rubbish_is_none() -> None:
    assert from_text(to_text(HERE)) == HERE
    for rubbish in (None, "", "{", "7", '"engine:fake"', "The work pool's default queue."):
        assert from_text(rubbish) == frozenset()
    assert to_text(["b", "a", "b"]) == to_text(("a", "b")), "equal needs are equal text"


def test_what_the_nearest_machine_lacks() -> None:
    needs = {"engine:fake", "os:windows", "lab"}
    near = frozenset({"engine:fake", "lab"})
    assert lacking([frozenset(), near, HERE], needs) == ["os:windows"]
    assert lacking([], needs) == sorted(needs)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed.interface import MAX_DESCRIPTION, Published, parse_tree, write_description

TREE = "0123456789abcdef" * 4


@given(st.text())
def test_what_is_written_is_read_whatever_the_text_says(text: str) -> None:
    line = write_description(TREE, text)
    assert parse_tree(line) == TREE
    assert len(line) <= MAX_DESCRIPTION
    assert line.splitlines() == [line]


def test_another_digest_in_the_text_does_not_win() -> None:
    assert parse_tree(write_description(TREE, f"tree=sha256:{'f' * 64}")) == TREE


def test_text_is_kept_readable() -> None:
    assert write_description(TREE, " a\n\tb ") == f"tree=sha256:{TREE} a b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a model",
        "tree=sha256:abc",
        f"tree=sha256:{TREE}0",
        f"tree=sha256:{TREE.upper()}",
        f"subtree=sha256:{TREE}",
    ],
)
def test_descriptions_of_others(text: str) -> None:
    assert parse_tree(text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("m:fill-mask@mlas_cpu samples=processor", "processor"),
        ("m:fill-mask@qnn_npu (w8a16, 3 in float) samples=dataset (unverified)", "dataset"),
        ("m:fill-mask@export", None),
        ("nosamples=dataset", None),
    ],
)
def test_the_kind_of_samples_is_read_from_it(text: str, kind: str | None) -> None:
    assert Published("p", "1", write_description("0" * 64, text)).samples == kind

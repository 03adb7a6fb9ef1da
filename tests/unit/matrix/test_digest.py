"""Tree digests: the same content is the same digest, any other content is another one."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.digest import (
    BUILD_RECORD,
    PROVENANCE,
    RUN_RECORDS,
    SBOM,
    FileEntry,
    files_digest,
    tree_digest,
    value_digest,
)

HEX = hashlib.sha256(b"x").hexdigest()
entries = st.lists(
    st.builds(
        FileEntry,
        path=st.text(alphabet="ab/é.", min_size=1, max_size=6),
        size=st.integers(0, 9),
        sha256=st.sampled_from([HEX, "0" * 64]),
    ),
    unique_by=lambda entry: entry.path,
    max_size=6,
)


@given(entries, st.randoms())
def test_order_does_not_matter(files: list[FileEntry], random: object) -> None:
    assert tree_digest(reversed(files)) == tree_digest(files)


@given(entries, entries)
def test_other_content_is_another_digest(one: list[FileEntry], two: list[FileEntry]) -> None:
    assert (tree_digest(one) == tree_digest(two)) == (sorted(one) == sorted(two))


def test_the_build_record_is_not_part_of_it() -> None:
    model = FileEntry("model.onnx", 3, HEX)
    assert tree_digest([model, FileEntry(BUILD_RECORD, 1, HEX)]) == tree_digest([model])
    nested = FileEntry(f"encoder/{BUILD_RECORD}", 1, HEX)
    assert tree_digest([model, nested]) != tree_digest([model])


def test_a_value_has_one_spelling() -> None:
    spelled = '{"a":[1.5,"é"],"b":1}'.encode()
    assert value_digest({"b": 1, "a": [1.5, "é"]}) == hashlib.sha256(spelled).hexdigest()
    assert value_digest({"a": 1, "b": 2}) == value_digest({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="JSON"):
        value_digest(float("nan"))


def test_what_tells_of_a_run_is_never_part_of_a_package_and_always_of_other_files() -> None:
    model = FileEntry("model.onnx", 3, HEX)
    for name in sorted(RUN_RECORDS):
        record = FileEntry(name, 1, HEX)
        assert tree_digest([model, record]) == tree_digest([model])
        assert files_digest([model, record]) != files_digest([model])
    assert files_digest([model]) == tree_digest([model])
    assert {BUILD_RECORD, PROVENANCE, SBOM} < RUN_RECORDS

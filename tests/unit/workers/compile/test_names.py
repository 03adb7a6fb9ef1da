"""Names of context models, apart on every disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.compile.group import output_stems


@pytest.mark.parametrize(
    ("stems", "names"),
    [
        (["a", "b"], ["a", "b"]),
        (["model", "model"], ["model", "model_1"]),
        (["model", "model", "model"], ["model", "model_1", "model_2"]),
        # The system this replaces gives model_1 twice here, and one file overwrites the other.
        (["model", "model", "model_1"], ["model", "model_2", "model_1"]),
        (["model", "Model"], ["model", "Model_1"]),
        (["model", "model", "model_1", "Model"], ["model", "model_2", "model_1", "Model_3"]),
    ],
)
def test_repeated_stems(stems: list[str], names: list[str]) -> None:
    assert output_stems(stems) == names


@given(st.lists(st.sampled_from(["m", "M", "m_1", "M_1", "m_2", "m_1_1"]), max_size=8))
def test_no_two_names_are_equal_in_any_case(stems: list[str]) -> None:
    names = output_stems(stems)
    assert len({name.casefold() for name in names}) == len(stems)
    assert all(name.startswith(stem) for name, stem in zip(names, stems, strict=True))

"""Cell ids: printed and parsed without loss, and nothing ambiguous ever gets in."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from matrix.cellid import CellId, cell_id, model_fault, parse, task_fault
from matrix.errors import MillError, UsageError
from matrix.policy import PRECISIONS

models = st.from_regex(r"[a-zA-Z0-9._ü模-]{1,9}(/[a-zA-Z0-9._ü模-]{1,9})?", fullmatch=True).filter(
    lambda text: not model_fault(text)
)
tasks = st.just("") | st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,9}", fullmatch=True)
labels = st.from_regex(r"[a-z0-9]{1,4}(_[a-z0-9]{1,4}){0,2}", fullmatch=True)
precisions = st.none() | st.sampled_from(PRECISIONS)


@given(models, tasks, labels, precisions)
def test_what_is_printed_can_be_parsed(
    model: str, task: str, target: str, precision: str | None
) -> None:
    cell = CellId(model, task, target, precision)
    assert parse(str(cell)) == cell


@given(st.text(max_size=40) | st.from_regex(r"[a-c@:/]{0,12}", fullmatch=True))
def test_what_is_parsed_prints_the_same_and_rubbish_is_a_clear_error(text: str) -> None:
    said = ""
    try:
        printed = str(parse(text))
    except MillError as err:
        printed, said = "", str(err)
    assert printed == text or "is not a cell id" in said
    assert said.isprintable()


@given(models, tasks, labels, models, tasks, labels)
def test_different_parts_make_different_ids(
    m1: str, t1: str, l1: str, m2: str, t2: str, l2: str
) -> None:
    assume((m1, t1, l1) != (m2, t2, l2))
    assert cell_id(m1, t1, l1) != cell_id(m2, t2, l2)


def test_the_forms() -> None:
    assert cell_id("a/b", "t", "qnn_npu") == "a/b:t@qnn_npu"
    assert cell_id("a/b", "", "qnn_npu") == "a/b@qnn_npu"
    assert cell_id("a/b", "t", "qnn_npu", "fp16") == "a/b:t@qnn_npu:fp16"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no '@'"),
        ("a/b:t", "no '@'"),
        ("@qnn_npu", "model id is empty"),
        ("a/b:@qnn_npu", "task is empty"),
        ("a/b:t@", "cannot be a target"),
        ("a/b:t@QNN", "cannot be a target"),
        ("a/b:t@q__n", "cannot be a target"),
        ("a/b:t@qnn_npu:", "not a precision"),
        ("a/b:t@qnn_npu:int8", "not a precision"),
        ("a/b:t@x@y", "cannot be a target"),
        ("a/b:t:u@x", "may hold only"),
    ],
)
def test_why_it_is_no_cell_id(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "a@b", "a:b", "a b", "a\tb", "a\n", "a\x00", "a\u202eb", "a\u00a0b", "a*", "a{b", "a,b",
     "a/../b", "./a", "/a", "a/", "a//b", "a\\b", "a\ud800", "x" * 201, "$(a)", "a;b"],
)  # fmt: skip
def test_ids_that_cannot_stand_in_a_cell_id(text: str) -> None:
    assert model_fault(text)


@pytest.mark.parametrize("text", ["gpt2", "a/b", "模型/测试", "Ünï/cödé", "a.b/c_d-1.0", "a/b/c"])
def test_ids_that_can(text: str) -> None:
    assert model_fault(text) == ""


def test_tasks() -> None:
    assert task_fault("") == ""
    assert task_fault("text-generation-with-past") == ""
    for bad in ("a b", "a/b", "-a", "a@b", "ä", "a\n", "x" * 65):
        assert task_fault(bad), bad

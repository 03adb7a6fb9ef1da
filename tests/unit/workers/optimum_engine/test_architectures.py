"""The rows of our architectures: what they name exists, and plans know all of it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from matrix.abilities import abilities_of
from matrix.coverage import heads
from tests.engines.sources import make_request
from workers.engine import Request, StageError
from workers.optimum_engine import OptimumEngine
from workers.optimum_engine.architectures import families, inputs, rows


@pytest.mark.parametrize("architecture", sorted(rows.rows()))
def test_what_a_row_names_exists(architecture: str) -> None:
    row = rows.rows()[architecture]
    table = abilities_of("optimum")
    assert table
    assert architecture in heads()
    assert set(row.tasks) <= set(table.architectures[architecture])
    assert row.inputs or row.like or row.module
    assert not row.module or find_spec(f"{row.package}.{row.module}")
    for task in row.tasks:
        for name in row.names("inputs", task):
            assert inputs.axes(row, name, task)


@pytest.mark.parametrize(
    ("architecture", "task", "one"),
    [
        ("ctrl", "text-generation", True),
        ("apertus", "text-generation", False),  # like one of Optimum's, which has a cache
        ("t5", "question-answering", True),
        ("t5", "text2text-generation", False),
        ("gpt2", "text-generation", False),
    ],
)
def test_what_a_row_alone_exports_is_one_graph(architecture: str, task: str, one: bool) -> None:
    assert families.is_one_graph(architecture, task) is one


def test_several_choices_are_an_axis() -> None:
    row = rows.Row("x", ["multiple-choice"], inputs=["input_ids"])
    found = inputs.axes(row, "input_ids", "multiple-choice")
    assert found == ("batch_size", "num_choices", "sequence_length")


def test_an_input_without_axes_is_told() -> None:
    with pytest.raises(StageError, match="axes of the input 'odd'"):
        inputs.axes(rows.Row("x", ["a"], inputs=["odd"]), "odd", "a")


def test_names_and_sizes_may_differ_between_tasks() -> None:
    row = rows.Row("x", ["a", "b"], inputs={"a": ["input_ids"]}, fixed=["b"])
    assert (row.names("inputs", "a"), row.names("inputs", "b")) == (["input_ids"], ())
    assert (row.is_fixed("a"), row.is_fixed("b")) == (False, True)


def test_the_exporter_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(request: Request) -> dict[str, object]:
        spec = OptimumEngine().plan(request).stages[0]
        return {**spec.params, "tools": spec.tools}

    source = {"kind": "random", "ref": "new", "seed": 1, "config": {}}
    plain = export(make_request(source=source))
    found = {"new": rows.Row("x", ["fill-mask"], inputs=["input_ids"], exporter=rows.DYNAMO)}
    monkeypatch.setattr(rows, "rows", lambda: found)
    other = export(make_request(source=source))
    assert "exporter" not in plain
    assert other["exporter"] == "dynamo"
    assert set(other["tools"]) - set(plain["tools"]) == {"onnxscript"}  # type: ignore[call-overload]

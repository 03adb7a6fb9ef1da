"""The statements in SQL say what the rest of the product says, and are used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import text

from matrix.needs import MEASURES
from matrix.status import FAILED, Status
from state import sql
from state.rows import selected
from state.sql import spoken, statements
from state.state import State
from state.transitions import FINAL, RUNNING, WAITING

CODE = "\n".join(path.read_text("utf-8") for path in Path(sql.__file__).parent.glob("*.py"))
SQL = Path(sql.__file__).with_name("statements.sql").read_text("utf-8")


def words(statement: str) -> set[str]:
    return set(re.findall(r"'([a-z_]+)'", statements()[statement]))


def test_every_statement_is_used() -> None:
    assert len(statements()) == SQL.count("-- name: ")
    used = {*re.findall(r'"(\w+)"', CODE), *re.findall(r"\{(\w+)\}", SQL + CODE)}
    assert set(statements()) <= used


def test_what_is_run_is_there(state: State) -> None:
    named = re.findall(r'\.(?:run|rows|each)\(\s*"(\w+)"', CODE)
    assert len(named) > 40
    assert set(named) <= set(statements())
    for name, body in statements().items():
        if body.split()[0] in {"SELECT", "INSERT", "UPDATE", "DELETE"} and "pg_" not in body:
            with state.database.read() as connection:
                query = text(spoken(body, sqlite=True))
                connection.execute(text(f"EXPLAIN {query}"), dict.fromkeys(query._bindparams))
        assert "{" not in spoken(body, sqlite=False), name


def test_the_cells_of_a_model_are_found_without_reading_its_sweep(state: State) -> None:
    """A slot asks for them three times with each lease."""
    of_model = selected("outcome", {"sweep_id": 1, "model": "m", "needs": "[]"}) + " ORDER BY cell"
    for query in (of_model, statements()["cells_of_work"]):
        with state.database.read() as connection:
            asked = text(f"EXPLAIN QUERY PLAN {spoken(query, sqlite=True)}")
            (plan, *_others) = connection.execute(asked, dict.fromkeys(asked._bindparams)).all()
        assert "ix_outcome_model (sweep_id=? AND model=?)" in plan.detail


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("failed", {*FAILED}),
        ("published", {*FINAL}),
        ("unfinished", {*RUNNING} - {Status.VERIFIED}),
        ("has_open", {*WAITING}),
        ("cells_of_work", {*WAITING}),
    ],
)
def test_statuses_are_those_of_the_transitions(name: str, statuses: set[Status]) -> None:
    assert words(name) - {"verified"} == {status.value for status in statuses}


@pytest.mark.parametrize("name", ["next_work", "built_elsewhere"])
def test_measuring_is_told_by_the_same_words(name: str) -> None:
    found = re.findall(r"""LIKE '%"([a-z-]+:)%'""", statements()[name])
    assert set(found) == set(MEASURES)

"""Tunings, their trials and their sessions, on whichever database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from matrix.trials import Phase, SessionKind, TuningStatus, Verdict
from state.errors import StateError
from state.state import State
from state.tunings import SessionRow, TrialRow, TuningRow
from tests.states.samples import TREE, sql

NAME = "nightly"


def planned(state: State, count: int = 1) -> list[TuningRow]:
    rows = [
        TuningRow(name=NAME, model=f"org/m{at}:t", target="mlas_cpu", position=at, detail={"n": at})
        for at in range(count)
    ]
    assert state.plan_tunings(NAME, rows)
    return state.tunings(NAME)


def trial(tuning: TuningRow, key: str = "h1", **values: Any) -> TrialRow:
    told = {"position": 1, "phase": Phase.SINGLE, "detail": {"settings": ["opset=21"]}}
    return TrialRow(tuning_id=tuning.id, key=key, **{**told, **values})


def session(tuning: TuningRow, number: int = 1, **values: Any) -> SessionRow:
    told = {
        "trial": "h1", "kind": SessionKind.COMPARISON, "component": "",
        "detail": {"order": "ton"}, "raw": {"this": [1, 2, 3]},
    }  # fmt: skip
    return SessionRow(tuning_id=tuning.id, number=number, **{**told, **values})


class TestTunings:
    def test_a_name_is_given_once(self, state: State) -> None:
        first, second = planned(state, 2)
        assert [first.model, second.model] == ["org/m0:t", "org/m1:t"]
        assert (first.status, first.ended_at, first.detail) == (
            TuningStatus.PLANNED,
            None,
            {"n": 0},
        )
        assert not state.plan_tunings(NAME, [replace(first, model="org/other:t")])
        assert len(state.tunings()) == len(state.tunings(NAME)) == 2
        assert state.tunings("other") == []

    def test_a_tuning_begins_once_and_may_end_again(self, state: State) -> None:
        (row,) = planned(state)
        state.keep_tuning(replace(row, status=TuningStatus.RUNNING))
        (running,) = state.tunings(NAME)
        assert running.began_at is not None
        state.keep_tuning(
            replace(running, status=TuningStatus.OUT_OF_TIME, message="h2 was not tried\0")
        )
        (stopped,) = state.tunings(NAME)
        assert stopped.ended_at is not None
        assert stopped.message == "h2 was not tried"
        state.keep_tuning(replace(stopped, status=TuningStatus.RUNNING, detail={"n": 7}))
        (again,) = state.tunings(NAME)
        assert (again.began_at, again.ended_at) == (running.began_at, None)
        assert again.detail == {"n": 7}

    def test_a_trial_is_kept_as_it_goes_on(self, state: State) -> None:
        (row,) = planned(state)
        state.keep_trial(trial(row))
        done = trial(row, verdict=Verdict.BETTER, tree=TREE, detail={"why": "faster"})
        state.keep_trial(done)
        state.keep_trial(trial(row, "baseline", position=0, phase=Phase.BASELINE, tree=TREE))
        found = state.trials(row.id)
        assert [one.key for one in found] == ["baseline", "h1"]
        assert found[1] == done

    def test_sessions_come_back_with_their_times_when_they_are_asked_for(
        self, state: State
    ) -> None:
        (row,) = planned(state)
        state.keep_trial(trial(row))
        state.keep_session(session(row))
        state.keep_session(session(row, 2))
        state.keep_session(session(row, kind=SessionKind.SCREEN))
        state.keep_session(session(row, 2, raw={"this": [4]}))
        assert [one.raw for one in state.sessions(row.id)] == [None] * 3
        found = {(one.kind, one.number): one for one in state.sessions(row.id, "h1", raw=True)}
        assert found[SessionKind.COMPARISON, 1].raw == {"this": [1, 2, 3]}
        assert found[SessionKind.COMPARISON, 2].raw == {"this": [4]}
        assert state.sessions(row.id, "h2") == []

    def test_damaged_times_are_an_error_that_names_them(self, state: State) -> None:
        (row,) = planned(state)
        state.keep_trial(trial(row))
        state.keep_session(session(row))
        state.keep_session(session(row, 2))
        sql(state, "UPDATE trial_session SET raw = :raw WHERE number = 1", raw=b"noise")
        with pytest.raises(StateError, match="the times of session 1 of h1"):
            state.sessions(row.id, raw=True)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE tuning SET status = 'glorious'",
            "UPDATE tuning SET status = 'done'",
            "UPDATE tuning SET ended_at = 1",
            "UPDATE tuning SET status = 'failed', ended_at = 1",
            "UPDATE trial SET phase = 'lunar'",
            "UPDATE trial SET verdict = 'lovely'",
            "UPDATE trial SET verdict = 'better'",
            "UPDATE trial SET tree = 'short'",
            "UPDATE trial_session SET number = 0",
            "UPDATE trial_session SET kind = 'recess'",
            "UPDATE trial_session SET trial = 'h9'",
            "DELETE FROM tuning",
        ],
    )
    def test_constraints_refuse_what_cannot_be(self, state: State, statement: str) -> None:
        (row,) = planned(state)
        state.keep_trial(trial(row))
        state.keep_session(session(row))
        with pytest.raises(IntegrityError):
            sql(state, statement)

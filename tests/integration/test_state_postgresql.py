"""The same state on a real PostgreSQL server: the unit tests of it again, and what only it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from matrix.status import Status
from state.errors import StateError, StateUnavailable
from state.records import Facts, Kind
from state.state import State, open_state
from tests.machine.timing import patient
from tests.services.postgres import PASSWORD, Server, free_port, postgres
from tests.states.child import DRAIN, Child
from tests.states.samples import ALIVE, TREE, begin, cell, model, rows, sql, stage, status, take
from tests.states.suites import (
    leases,
    measurements,
    migrations,
    needs,
    pruning,
    queries,
    recording,
    schema,
    seeding,
    shared_tunings,
    sweeps,
    tunings,
)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres() as made:
        yield made


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep a test from its transaction for seconds, which is no stop."""
    monkeypatch.setattr("state.database.SILENT_SECONDS", 120)


@pytest.fixture(scope="session")
def template(server: Server) -> str:
    server.execute("CREATE DATABASE template")
    open_state(server.url("template")).close()
    return "template"


@pytest.fixture
def url(server: Server, template: str) -> str:
    return server.new_database(template)


@pytest.fixture
def state(url: str) -> Iterator[State]:
    with open_state(url) as opened:
        yield opened


class TestLeases(leases.TestLeases):
    """On PostgreSQL."""


class TestMigrations(migrations.TestMigrations):
    """On PostgreSQL."""

    @pytest.fixture
    def where(self, url: str) -> str:
        return url


class TestNeeds(needs.TestNeeds):
    """On PostgreSQL."""


class TestRecording(recording.TestRecording):
    """On PostgreSQL."""


class TestSweeps(sweeps.TestSweeps):
    """On PostgreSQL."""


class TestTunings(tunings.TestTunings):
    """On PostgreSQL."""


class TestSharedTunings(shared_tunings.TestSharedTunings):
    """On PostgreSQL."""


class TestSeeding(seeding.TestSeeding):
    """On PostgreSQL."""


class TestQueries(queries.TestQueries):
    """On PostgreSQL."""


class TestPruning(pruning.TestPruning):
    """On PostgreSQL."""


class TestMeasurements(measurements.TestMeasurements):
    """On PostgreSQL."""


class TestBenchWork(measurements.TestBenchWork):
    """On PostgreSQL."""


class TestSchema(schema.TestSchema):
    """On PostgreSQL."""


def test_many_open_an_empty_database_at_once(server: Server) -> None:
    server.execute("CREATE DATABASE fresh")
    start = threading.Barrier(5)

    def run() -> int:
        start.wait()
        with open_state(server.url("fresh")) as state:
            return begin(state).id

    with ThreadPoolExecutor(5) as pool:
        ids = {one.result() for one in [pool.submit(run) for _ in range(5)]}
    assert len(ids) == 1


def test_a_newer_schema_is_refused(url: str) -> None:
    with open_state(url) as state:
        sql(state, "UPDATE modelmill_schema SET version_num = '9999'")
    with pytest.raises(StateError, match="does not know"):
        open_state(url)


@pytest.mark.parametrize("database", ["postgres", "nowhere"])
def test_a_refused_login_says_so_without_the_password(server: Server, database: str) -> None:
    wrong = "wr0ng" if database == "postgres" else PASSWORD
    with pytest.raises(StateError, match=r"authentication|does not exist") as caught:
        open_state(server.url(database, wrong))
    assert not isinstance(caught.value, StateUnavailable)
    assert wrong not in str(caught.value)


def test_a_server_that_does_not_answer_is_transient() -> None:
    with pytest.raises(StateUnavailable, match="refused"):
        open_state(f"postgresql://mill:{PASSWORD}@127.0.0.1:{free_port()}/x")


def test_processes_drain_one_sweep_without_overlap(state: State, url: str) -> None:
    sweep = begin(state, rows(60))
    drains = [Child(DRAIN, url, sweep.id, f"slot-{number}") for number in range(3)]
    try:
        for drain in drains:
            assert drain.hear() == "ready"
        for drain in drains:
            drain.say()
        taken = [name for drain in drains for name in drain.rest()]
    finally:
        for drain in drains:
            drain.end()
    assert sorted(taken) == sorted(model(number) for number in range(60))
    assert list(state.statuses(sweep.id).values()) == [Status.PUBLISHED] * 120


def test_two_sweeps_fight_for_the_same_models(state: State) -> None:
    """Every model is in both sweeps; deadlocks and lost races must not show."""
    first = begin(state, rows(20))
    second = begin(state, rows(20, stamp="b"), stamp="b")
    held: set[str] = set()
    guard = threading.Lock()

    def drain(sweep_id: int) -> int:
        done = 0
        while state.remaining(sweep_id).open:
            lease = state.lease(sweep_id, ALIVE, 60)
            if lease is None:
                continue
            with guard:
                assert lease.model not in held
                held.add(lease.model)
            state.record(lease, sweep_id, f"{lease.model}@qnn_npu", Status.BUILDING)
            with guard:
                held.remove(lease.model)
            done += state.release(lease, done=True)
        return done

    with ThreadPoolExecutor(6) as pool:
        drains = [pool.submit(drain, one.id) for one in (first, second) * 3]
    assert sum(one.result() for one in drains) == 40


def test_a_model_that_is_being_leased_is_passed_over(state: State) -> None:
    sweep = begin(state, rows(2))
    with state.database.write() as other, ThreadPoolExecutor(1) as pool:
        other.exec_driver_sql(f"SELECT * FROM work WHERE model = '{model(0)}' FOR UPDATE")
        taking = pool.submit(take, state, sweep)
        _wait_for_locks(state, 1, taking)
        assert taking.done()
        assert taking.result().model == model(1)


def test_take_over_waits_for_a_record_in_flight(state: State) -> None:
    """Between the check of a token and the commit nobody can take the model over."""
    sweep = begin(state, rows(1))
    late = take(state, sweep, ALIVE, ttl=0)
    facts = Facts(tree=TREE)
    with state.database.write() as blocker, ThreadPoolExecutor(2) as pool:
        # The record gets as far as its stage key, which this transaction holds.
        blocker.exec_driver_sql("INSERT INTO stage_key (key, parts) VALUES ('k', '{}')")
        stages = [stage("export", "k")]
        recording = pool.submit(
            state.record, late, sweep.id, cell(), Status.PUBLISHED, facts, stages
        )
        _wait_for_locks(state, 1, recording)
        taking = pool.submit(take, state, sweep)
        _wait_for_locks(state, 2, taking)
        assert not taking.done()
        blocker.rollback()
        recording.result(timeout=patient(60))
        assert taking.result(timeout=patient(60)).token > late.token
    assert status(state, sweep) is Status.PUBLISHED


def _wait_for_locks(state: State, number: int, working: Future[Any]) -> None:
    waiting = 0
    while waiting < number and not working.done():
        with state.database.read() as connection:
            waiting = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND datname = current_database()"
            ).scalar_one()


def test_half_a_transaction_of_a_stopped_process_is_ended(
    state: State, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold its locks, and everybody who wants to lease, for as long as it is stopped."""
    sweep = begin(state, rows(1))
    take(state, sweep, ALIVE, ttl=0)
    monkeypatch.setattr("state.database.SILENT_SECONDS", 1)

    def be_stopped(stopped: State) -> None:
        with stopped.database.write() as connection:
            connection.exec_driver_sql("SELECT * FROM lease FOR UPDATE")
            assert take(state, sweep).attempt == 2  # waits for the end of the other one
            connection.exec_driver_sql("SELECT 1")

    with open_state(url) as stopped, pytest.raises(StateUnavailable) as caught:
        be_stopped(stopped)
    assert PASSWORD not in str(caught.value)


def test_a_reader_of_events_misses_none_that_commits_late(state: State) -> None:
    sweep = begin(state)
    start = sweep.run
    with state.database.write() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO event (at, sweep_id, kind) VALUES (4e9, {sweep.id}, 'notice')"
        )
        state.note(sweep.id, Kind.INTERRUPTED)  # a higher id, committed first
        assert list(state.events(sweep.id, start)) == []
    kinds = [one.kind for one in state.events(sweep.id, start)]
    assert kinds == [Kind.NOTICE, Kind.INTERRUPTED]


@pytest.mark.parametrize("user", ["", "plain"])
def test_transactions_of_other_databases_hide_no_event(
    server: Server, state: State, url: str, user: str
) -> None:
    """Nobody looks into them: a cancellation would be seen a minute late."""
    sweep = begin(state)
    if user:
        server.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")
        with state.database.write() as connection:
            connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}")
        url = str(make_url(url).set(username=user).render_as_string(hide_password=False))
    server.execute("CREATE DATABASE other")
    with (
        psycopg.connect(server.url("other")) as busy,
        open_state(url) as reader,
        state.database.write() as ours,
    ):
        busy.execute("CREATE TABLE anything (id int)")  # has a transaction id from here on
        state.note(sweep.id, Kind.INTERRUPTED)
        seen = [one.kind for one in reader.events(sweep.id, sweep.run)]
        assert seen == [Kind.INTERRUPTED]
        assert reader.last_event(sweep.id) > sweep.run
        # One of this database still does.
        ours.exec_driver_sql("CREATE TABLE something (id int)")
        state.note(sweep.id, Kind.NOTICE)
        seen = [one.kind for one in reader.events(sweep.id, sweep.run)]
        assert seen == [Kind.INTERRUPTED]
        busy.rollback()
    server.execute("DROP DATABASE other")
    if user:
        with state.database.write() as connection:
            connection.exec_driver_sql(f"DROP OWNED BY {user}")
        server.execute(f"DROP ROLE {user}")


def test_the_server_may_restart(server: Server, state: State) -> None:
    sweep = begin(state, rows(1))
    lease = take(state, sweep)
    state.record(lease, sweep.id, cell(), Status.BUILDING)
    server.stop()
    with pytest.raises(StateUnavailable) as caught:
        state.record(lease, sweep.id, cell(), Status.BUILT)
    assert PASSWORD not in str(caught.value)
    server.start()
    assert state.renew(lease, 60)
    state.record(lease, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
    assert status(state, sweep) is Status.PUBLISHED

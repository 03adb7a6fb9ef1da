"""What was measured, and what a sweep still has to measure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from matrix.needs import measuring
from matrix.status import FailureClass, Status
from state.errors import LeaseLost, StateError
from state.leases import MAX_LOST
from state.measurements import MEASURED
from state.records import (
    BenchState,
    CellRow,
    Facts,
    Kind,
    Lease,
    Measurement,
    MeasurementKind,
    Remaining,
    SweepInfo,
)
from state.state import State
from tests.states.samples import ALIVE, DEAD, TREE, begin, cell, rows, sql, status

NPU = measuring("qnn", "npu", emulated=False)
CPU = measuring("cpu", "cpu", emulated=False)
PROTOCOL = {"warmup": 1, "iterations": 3}


def one(**values: Any) -> Measurement:
    told: dict[str, Any] = {
        "kind": MeasurementKind.BENCHMARK,
        "tree": TREE,
        "cell": cell(),
        "stamp": "20260609",
        "runtime": "onnxruntime",
        "provider": "CPUExecutionProvider",
        "device": "cpu",
        "version": "1.23.0",
        "emulated": False,
        "machine": "box",
        "protocol": PROTOCOL,
        "percentiles": {"p50": 1.5, "p90": 2.0},
    }
    return Measurement(**{**told, **values})


def measured_rows(models: int = 1, needs: Collection[str] = (NPU,)) -> list[CellRow]:
    return [replace(row, needs={"engine:fake"}, bench=needs) for row in rows(models)]


def begin_measuring(
    state: State, cells: list[CellRow] | None = None, protocol: Any = PROTOCOL
) -> SweepInfo:
    cells = measured_rows() if cells is None else cells
    models = dict.fromkeys((row.model for row in cells), 0.0)
    return state.begin("20260609", "feed", cells, models, {}, {}, protocol=protocol)


def build_all(state: State, info: SweepInfo) -> None:
    while held := state.lease(info.id, ALIVE, 60.0, offers=frozenset({"engine:fake"})):
        for name in state.statuses(info.id, held.model, held.needs):
            state.record(held, info.id, name, Status.BUILDING)
            state.record(held, info.id, name, Status.PUBLISHED, Facts(tree=TREE))
        state.release(held, done=True)


def take_bench(state: State, info: SweepInfo, *words: str) -> Lease | None:
    return state.lease(info.id, ALIVE, 60.0, offers=frozenset(words or {NPU}))


def states(state: State, info: SweepInfo) -> dict[str, BenchState]:
    return {bench.cell: bench.state for bench in state.benches(info.id)}


class TestMeasurements:
    def test_what_is_kept_comes_back(self, state: State) -> None:
        samples = {"sessions": [[1.25, 1.5, 9e-3]] * 3, "text": "x" * 20_000}
        number = state.keep(one(raw=samples, detail={"graphs": 1}))
        (found,) = state.measurements([TREE])
        assert (found.id, found.raw) == (number, None)
        assert found.at == pytest.approx(state.now(), abs=60)
        assert replace(found, id=0, at=0.0, raw=samples) == one(raw=samples, detail={"graphs": 1})
        assert state.raw_of(number) == samples
        assert state.raw_of(number + 1) is None

    def test_measurements_are_found_by_digest_and_kind(self, state: State) -> None:
        other = "b" * 64
        state.keep(one())
        state.keep(one(tree=other))
        state.keep(one(kind=MeasurementKind.TRACE))
        assert [found.tree for found in state.measurements([other])] == [other]
        (trace,) = state.measurements(kind=MeasurementKind.TRACE)
        assert trace.tree == TREE
        assert len(state.measurements()) == 3
        assert state.measurements([]) == []

    def test_damaged_samples_are_an_error_that_names_them(self, state: State) -> None:
        number = state.keep(one(raw={"sessions": []}))
        sql(state, "UPDATE measurement SET raw = :raw, protocol = '[1]'", raw=b"rubbish")
        with pytest.raises(StateError, match=f"the samples of measurement {number}"):
            state.raw_of(number)
        with pytest.raises(StateError, match=f"measurement.protocol of {number}"):
            state.measurements()

    def test_constraints_refuse_impossible_rows(self, state: State) -> None:
        begin_measuring(state)
        state.keep(one())
        for statement in (
            "UPDATE measurement SET tree = 'short'",
            "UPDATE measurement SET kind = 'rumour'",
            "UPDATE bench SET state = 'glorious'",
            "UPDATE bench SET state = 'failed', message = NULL",
            "UPDATE bench SET cell = 'none'",
        ):
            with pytest.raises(IntegrityError):
                sql(state, statement)


class TestBenchWork:
    def test_a_cell_is_leased_for_measuring_once_it_is_published(self, state: State) -> None:
        info = begin_measuring(state)
        assert take_bench(state, info) is None
        build_all(state, info)
        held = take_bench(state, info)
        assert held is not None
        assert held.needs == (NPU,)
        found = state.to_measure(held)
        assert [(outcome.cell, outcome.tree) for outcome in found] == [
            (cell(0, "mlas_cpu"), TREE),
            (cell(0, "qnn_npu"), TREE),
        ]
        for outcome in found:
            state.measured(held, outcome.cell, {"p50": 1.5}, [one(cell=outcome.cell)])
        assert state.to_measure(held) == []
        assert state.release(held, done=True)
        assert set(states(state, info).values()) == {BenchState.MEASURED}
        assert state.remaining(info.id) == Remaining(done=2)
        assert len(state.measurements([TREE])) == 2
        told = [
            (event.cell, event.data[MEASURED])
            for event in state.events(info.id, kind=Kind.NOTICE)
            if event.data and MEASURED in event.data
        ]
        assert told[0] == (found[0].cell, {"state": "measured", "p50": 1.5})

    def test_measuring_is_handed_out_after_all_building(self, state: State) -> None:
        info = begin_measuring(state, measured_rows(2))
        both = frozenset({NPU, "engine:fake"})
        first = state.lease(info.id, ALIVE, 60.0, offers=both)
        assert first is not None
        for name in state.statuses(info.id, first.model, first.needs):
            state.record(first, info.id, name, Status.PUBLISHED, Facts(tree=TREE))
        state.release(first, done=True)
        second = state.lease(info.id, ALIVE, 60.0, offers=both)
        assert second is not None
        assert second.needs == ("engine:fake",)

    def test_only_machines_with_the_device_get_it(self, state: State) -> None:
        info = begin_measuring(state)
        build_all(state, info)
        assert take_bench(state, info, CPU, "engine:fake") is None
        assert state.remaining(info.id, offers=frozenset({CPU})).open == 0
        assert state.demand(info.id)[frozenset({NPU})].todo == 1

    def test_what_was_published_before_can_be_measured_at_once(self, state: State) -> None:
        info = begin_measuring(state)
        build_all(state, info)
        again = begin_measuring(state)
        assert again.id == info.id
        assert take_bench(state, info) is not None

    def test_a_cell_published_while_its_model_is_measured_is_not_forgotten(
        self, state: State
    ) -> None:
        late, early = measured_rows()
        info = begin_measuring(state, [late, replace(early, needs={"engine:other"})])
        building = state.lease(info.id, ALIVE, 60.0, offers=frozenset({"engine:fake"}))
        other = state.lease(info.id, ALIVE, 60.0, offers=frozenset({"engine:other"}))
        assert building is not None
        assert other is not None
        state.record(other, info.id, early.cell, Status.PUBLISHED, Facts(tree=TREE))
        held = take_bench(state, info)
        assert held is not None
        state.measured(held, early.cell, {}, [])
        state.record(building, info.id, late.cell, Status.PUBLISHED, Facts(tree=TREE))
        state.release(held, done=True)
        again = take_bench(state, info)
        assert again is not None
        assert [found.cell for found in state.to_measure(again)] == [late.cell]

    def test_failed_cells_are_not_measured(self, state: State) -> None:
        info = begin_measuring(state)
        held = state.lease(info.id, ALIVE, 60.0, offers=frozenset({"engine:fake"}))
        assert held is not None
        facts = Facts(failure=FailureClass.EXPORT)
        for name in state.statuses(info.id, held.model, held.needs):
            state.record(held, info.id, name, Status.BUILD_FAILED, facts)
        state.release(held, done=True)
        assert state.remaining(info.id).open == 0
        assert take_bench(state, info) is None

    def test_what_failed_is_tried_again_and_what_was_measured_is_not(self, state: State) -> None:
        info = begin_measuring(state)
        build_all(state, info)
        held = take_bench(state, info)
        assert held is not None
        state.measured(held, cell(0, "mlas_cpu"), {}, [])
        state.unmeasurable(held, cell(), "the driver crashed")
        assert states(state, info)[cell()] is BenchState.FAILED
        state.release(held, done=True)
        assert state.remaining(info.id).open == 0
        begin_measuring(state)
        assert states(state, info) == {
            cell(): BenchState.WANTED,
            cell(0, "mlas_cpu"): BenchState.MEASURED,
        }
        assert state.remaining(info.id).open == 1
        begin_measuring(state, protocol={**PROTOCOL, "iterations": 4})
        assert set(states(state, info).values()) == {BenchState.WANTED}

    def test_a_run_without_measuring_wants_none(self, state: State) -> None:
        info = begin_measuring(state)
        build_all(state, info)
        begin(state, [replace(row, bench=()) for row in measured_rows()])
        assert state.benches(info.id) == []
        assert state.remaining(info.id) == Remaining(done=1)

    def test_a_late_result_of_a_lost_machine_is_refused(self, state: State) -> None:
        info = begin_measuring(state)
        build_all(state, info)
        held = state.lease(info.id, DEAD, 60.0, offers=frozenset({NPU}))
        assert held is not None
        newer = take_bench(state, info)
        assert newer is not None
        assert newer.token > held.token
        with pytest.raises(LeaseLost):
            state.measured(held, cell(), {}, [one()])
        with pytest.raises(LeaseLost):
            state.unmeasurable(held, cell(), "too late")
        assert state.measurements() == []
        with pytest.raises(StateError, match="not to be measured under this lease"):
            state.measured(newer, "org/other:task@qnn_npu", {}, [])

    def test_a_benchmark_that_kills_its_slots_is_set_aside(self, state: State) -> None:
        info = begin_measuring(state)
        build_all(state, info)
        for _ in range(MAX_LOST):
            assert state.lease(info.id, DEAD, 60.0, offers=frozenset({NPU})) is not None
        assert take_bench(state, info) is None
        assert set(states(state, info).values()) == {BenchState.FAILED}
        assert f"died {MAX_LOST} times" in str(state.benches(info.id)[0].message)
        assert status(state, info) is Status.PUBLISHED

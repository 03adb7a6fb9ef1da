"""Measures leased cells that are published, one after the other, on a quiet machine.

What is measured comes from the feed, so that any machine with the device can do it. A package that
was measured before on such a runtime, by the same protocol, is not measured again: content that did
not change keeps its numbers under the next stamp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from flows.measure.results import rows_of
from flows.measure.subjects import Choice, finding
from flows.slot.context import LeasedRun
from machine.reservations import UNDISTURBED
from machine.waits import Cancelled
from matrix.errors import MillError
from state.errors import LeaseLost, StateError
from state.measurements import same_protocol
from state.records import Measurement, MeasurementKind, Outcome
from workers.build.builder import WAITS
from workers.host.watch import Watching
from workers.measure.benchmark import Driver, benchmark
from workers.measure.result import Benchmark
from workers.measure.subject import Subject


@dataclass(slots=True)
class BenchRun(LeasedRun):
    """The benchmarks of one model under one lease; nothing else is built in its slot."""

    def run(self) -> bool:
        """Measure what waits for it; whether nothing is left. Raises `StateError`; any other error
        costs its cell only."""
        state, lease = self.sweep.state, self.lease.lease
        try:
            for one in state.to_measure(lease):
                if self.lease.gone.is_set():
                    break
                self._measure_or_record(one)
            return not state.to_measure(lease)
        except LeaseLost:
            self.lease.gone.set()
            return False

    def _measure_or_record(self, one: Outcome) -> None:
        """Measure a cell, or record why it could not be measured."""
        try:
            self._measure(one)
        except StateError:
            raise
        except Cancelled:
            self.lease.gone.set()
        except Exception as error:  # noqa: BLE001 - a feed, a disk or a runtime can raise anything
            if not self.lease.gone.is_set():
                text = str(error) if isinstance(error, MillError) else repr(error)
                self.sweep.state.unmeasurable(self.lease.lease, one.cell, text)
        finally:
            self.lease.activity = None

    def _measure(self, one: Outcome) -> None:
        settings, state = self.sweep.settings, self.sweep.state
        version = str((one.detail or {}).get("same_as", one.version))
        self.lease.say(one.cell, "fetching the package to measure")
        log, say = self.context.log_of(one.cell), partial(self.lease.say, one.cell)
        watching = Watching(settings.timeout, self.lease.gone, log, say)
        rules = watching.waits(WAITS * settings.timeout)
        with finding(settings, settings.threads, rules) as finder:
            subject = finder.published(one.package, version, Choice())
            if known := self._known(one, subject):
                told = {"on": subject.runtime.name, "before": [other.id for other in known]}
                state.measured(self.lease.lease, one.cell, told, [])
                return
            with self.context.ledger.reserve([UNDISTURBED], f"{one.cell} bench", rules):
                found = self._benchmark(Driver(finder.runtimes, watching), subject)
        rows = rows_of(found, stamp=self.sweep.plan.stamp, cell=one.cell, tree=one.tree)
        state.measured(self.lease.lease, one.cell, _told(found), rows)

    def _benchmark(self, driver: Driver, subject: Subject) -> Benchmark:
        found = benchmark(driver, subject, self.sweep.settings.protocol)
        if self.lease.gone.is_set():
            raise Cancelled("measuring was cancelled")
        for graph in found.graphs:
            if graph.fault is not None:
                where = f"{graph.component}: " if graph.component else ""
                raise MillError(f"{where}{graph.fault.failure}: {graph.fault.message}")
        return found

    def _known(self, one: Outcome, subject: Subject) -> Sequence[Measurement]:
        """Measurements of all graphs of this content, made before in the same way."""
        runtime, protocol = subject.runtime, asdict(self.sweep.settings.protocol)
        wanted = (runtime.kind, runtime.provider, runtime.device, runtime.version, runtime.emulated)
        found = [
            other
            for other in self.sweep.state.measurements([one.tree or ""], MeasurementKind.BENCHMARK)
            if (other.runtime, other.provider, other.device, other.version, other.emulated)
            == wanted
            and same_protocol(other.protocol, protocol)
        ]
        parts = {graph.component for graph in subject.graphs}
        return found if parts <= {other.component for other in found} else ()


def _told(found: Benchmark) -> Mapping[str, Any]:
    """What the event of a measured cell says. The graphs of a composite run one after another."""
    medians = [graph.latency.p50 for graph in found.graphs if graph.latency]
    return {
        "on": found.runtime.name,
        "emulated": found.emulated,
        "p50": round(sum(medians), 4),
        "graphs": len(medians),
    }

"""The suites that every database passes, on SQLite; `test_state_postgresql.py` has the other."""

from __future__ import annotations

from tests.states.suites.leases import TestLeases
from tests.states.suites.measurements import TestBenchWork, TestMeasurements
from tests.states.suites.migrations import TestMigrations
from tests.states.suites.needs import TestNeeds
from tests.states.suites.pruning import TestPruning
from tests.states.suites.queries import TestQueries
from tests.states.suites.recording import TestRecording
from tests.states.suites.schema import TestSchema
from tests.states.suites.seeding import TestSeeding
from tests.states.suites.shared_tunings import TestSharedTunings
from tests.states.suites.sweeps import TestSweeps
from tests.states.suites.tunings import TestTunings

__all__ = [
    "TestBenchWork",
    "TestLeases",
    "TestMeasurements",
    "TestMigrations",
    "TestNeeds",
    "TestPruning",
    "TestQueries",
    "TestRecording",
    "TestSchema",
    "TestSeeding",
    "TestSharedTunings",
    "TestSweeps",
    "TestTunings",
]

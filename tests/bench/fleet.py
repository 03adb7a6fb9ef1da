"""What a fleet costs: two workers, a Prefect server and PostgreSQL on this machine, in one run.

    python -m tests.bench.fleet [--models 456] [--spin-models 24] [--spin 200000] [--heartbeat 10]

Times are those of the events in the state, so they begin with the first lease:

- overhead: the do-nothing engine through two workers, from the first lease to the last cell
- what the state's database was sent meanwhile by everybody (`pg_stat_statements`)
- memory of the processes that run flows and of the Prefect server meanwhile
- one worker against two with an engine that keeps one core busy
- a slot that stops answering: until another one has its model, in heartbeats
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from flows.prefect.server import start_server
from state.records import Event, Kind
from tests.bench.command import LABELS, table, write_catalog
from tests.fleets.machines import Fleet, start_fleet, wait_for
from tests.sweeps.command import model

SLOT = "a slot"
ENGINES = ("--engines", "fake,nothing")
_STATEMENTS = (
    "SELECT s.query, s.calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
    " WHERE d.datname = current_database() AND s.query !~ 'pg_stat_statements'"
)
Row = tuple[object, ...]


def figure(what: str, value: float, goal: float, *, at_least: bool = False) -> Row:
    """A figure beside its goal."""
    bound = "at least" if at_least else "under"
    missed = value < goal if at_least else value > goal
    return (what, f"{value:.3f}", f"{bound} {goal:g}", "MISSED" if missed else "ok")


@dataclass
class Memory:
    """Resident bytes of processes over time."""

    sizes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    names: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def watched(self, fleet: Fleet) -> Iterator[None]:
        """Look every second while the block runs."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(1.0):
                for name, process in processes(fleet):
                    with suppress(psutil.Error):
                        self.sizes[process.pid].append(process.memory_info().rss)
                        if process.pid not in self.names or name == SLOT:
                            self.names[process.pid] = name

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def rows(self) -> list[Row]:
        """After a third of its life and at its end, for those that were there for most of it."""
        longest = max(map(len, self.sizes.values()))
        rows: list[Row] = [("MB of", "after a third", "at the end", "grown")]
        for pid, sizes in self.sizes.items():
            if len(sizes) > longest / 2:
                early, late = sizes[len(sizes) // 3] / 1e6, sizes[-1] / 1e6
                rows.append(
                    (self.names[pid], f"{early:.0f}", f"{late:.0f}", f"{late - early:+.0f}")
                )
        return rows


def processes(fleet: Fleet) -> Iterator[tuple[str, psutil.Process]]:
    """The server and everything that runs a flow."""
    assert fleet.prefect.process
    yield "the Prefect server", psutil.Process(fleet.prefect.process.pid)
    for machine in fleet.machines.values():
        for process in machine.slots():
            with suppress(psutil.Error):
                # Only a slot has an engine host.
                yield (SLOT if process.children() else "the parent"), process


def order(fleet: Fleet, catalog: str, stamp: str, *more: str) -> list[Event]:
    """A sweep on the fleet to its end; returns its events."""
    ran = fleet.project.run(
        *fleet.project.fleet("sweep", catalog, "--stamp", stamp, *more), plain=False
    )
    if ran.code:
        raise SystemExit(f"sweep {stamp} ended with {ran.code}:\n{ran.out[-2000:]}\n{ran.err}")
    return fleet.project.events(stamp)


def working_time(events: list[Event]) -> float:
    """From the first lease to the last change of a cell."""
    begun = next(one.at for one in events if one.kind is Kind.LEASED)
    return max(one.at for one in events if one.kind is Kind.STATUS) - begun


def count_statements(fleet: Fleet) -> None:
    """Load the extension, which takes a restart, and begin."""
    fleet.database.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
    fleet.database.stop()
    fleet.database.start()
    with psycopg.connect(fleet.project.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")


def statements(fleet: Fleet, *, reset: bool = False) -> dict[str, int]:
    """What this database was sent, and how often."""
    with psycopg.connect(fleet.project.url, autocommit=True) as connection:
        if reset:
            connection.execute("SELECT pg_stat_statements_reset()")
        return {" ".join(str(text).split()): int(n) for text, n in connection.execute(_STATEMENTS)}


def overhead(fleet: Fleet, models: int) -> list[Row]:
    """The do-nothing engine: time, statements, memory."""
    catalog = write_catalog(fleet.project.folder, models)
    memory = Memory()
    statements(fleet, reset=True)
    with memory.watched(fleet):
        events = order(fleet, catalog, "nothing", "--engine", "nothing")
    calls = statements(fleet)
    cells = models * LABELS
    print(f"\nwhat the state was sent, for each of {cells} cells")
    for text, count in sorted(calls.items(), key=lambda item: -item[1])[:12]:
        print(f"  {count / cells:6.2f}  {text[:100]}")
    print()
    table(memory.rows())
    ends = ("BEGIN", "COMMIT", "ROLLBACK")
    control = sum(count for text, count in calls.items() if text.startswith(ends))
    wall = working_time(events)
    slots = len({one.owner for one in events if one.kind is Kind.LEASED})
    return [
        figure(f"overhead of one of {models} models, s ({slots} slots)", wall / models, 0.3),
        figure("statements a cell", sum(calls.values()) / cells, 20),
        ("of these BEGIN, COMMIT, ROLLBACK", f"{control / cells:.3f}", "", ""),
    ]


def speed_up(fleet: Fleet, models: int, spin: int) -> Row:
    """The same work on one worker, then on two."""
    # Only the export works hard, and it is a new one for each model and each sweep.
    took = []
    for stamp in ("alone", "together"):
        if stamp == "together":
            fleet.machine("b", *ENGINES, "--sweeps", "0")
            fleet.ready("b")
        act = {"export": f"spin:{spin}"}
        entries = [model(f"spin/{stamp}-{number}", act=act) for number in range(models)]
        fleet.project.catalog(*entries)
        events = order(fleet, "catalog.toml", stamp, "--target", "mlas_cpu")
        took.append(working_time(events))
    alone, together = took
    print(
        f"\n{models} models that keep one core busy: {alone:.1f} s alone, {together:.1f} s on two"
    )
    return figure("two workers against one", alone / together, 1.8, at_least=True)


def take_over(fleet: Fleet, heartbeat: float) -> Row:
    """A slot stops answering with a model in its hands, while another one is idle."""
    hold = fleet.project.folder / "hold"
    catalog = fleet.project.catalog(
        model("tiny/held", act={"quantize": f"wait:{hold}"}), model("tiny/other", size=1_000_000)
    )
    with fleet.sweep(catalog, "held") as sweep:
        wait_for(hold.exists)
        first = fleet.holder("held", "tiny/held")
        fleet.wait_until("held", published=LABELS)
        with fleet.project.state() as state:
            stopped_at = state.now()
        os.kill(first.pid, signal.SIGSTOP)
        second = fleet.holder("held", "tiny/held", after=first.token)
        Path(f"{hold}.go").touch()
        os.kill(first.pid, signal.SIGCONT)
        sweep.end()
    return figure("take-over, heartbeats", (second.taken_at - stopped_at) / heartbeat, 2.0)


def prefect_template(folder: Path) -> Path:
    """A migrated home of a Prefect server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    server = start_server(folder, kept)
    server.wait(threading.Event())
    server.stop(15.0)
    return folder / "prefect"


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description="what a fleet costs")
    parser.add_argument("--models", type=int, default=456)
    parser.add_argument("--spin-models", type=int, default=24)
    parser.add_argument("--spin", type=int, default=200_000)
    parser.add_argument("--heartbeat", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        beat = {"MODELMILL_HEARTBEAT": str(asked.heartbeat)}
        with start_fleet(prefect_template(folder / "template"), folder, **beat) as fleet:
            count_statements(fleet)
            fleet.machine("a", *ENGINES)
            fleet.ready("a")
            rows = [speed_up(fleet, asked.spin_models, asked.spin)]
            rows += overhead(fleet, asked.models)
            rows.append(take_over(fleet, asked.heartbeat))
    print()
    table(rows)


if __name__ == "__main__":
    main()

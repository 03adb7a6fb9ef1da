"""What a tuning works with, in place of builds, processes, a quiet machine and clocks.

A build is named by its opset; `Times` says how long a run of it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.tune.place import Made, Planned, Shown
from flows.tune.record import Kept, Making, Recorded, Step, Trial, Tuning, planned, recorded
from flows.tune.tuning import TuningRun
from matrix.codec import to_json
from matrix.hypotheses import Hypothesis
from matrix.model import Cell
from matrix.plan import make_plan
from matrix.verification import Rung
from state.records import Lease
from state.state import State
from tests.measuring.runtimes import CPU, FakeRuntimes, always
from tests.plans.models import EVERYTHING, TARGETS, load, plan_options
from workers.host.client import Reply
from workers.host.watch import UNWATCHED, Watching
from workers.measure.benchmark import Driver
from workers.measure.result import Benchmark, Protocol
from workers.measure.subject import Artifact, Graph, Subject
from workers.measure.trace.result import Trace
from workers.runtimes.runtime import Runtime

NAME = "night"
BASE = 17
"""The opset of the baseline."""
PROTOCOL = Protocol(warmup=1, iterations=40, sessions=3)
HELD = (
    *(
        Rung(name, True, "")
        for name in ("integrity", "policy", "loads", "shapes", "samples", "parity")
    ),
    Rung("task", None, "not run: because the catalog gives no dataset and metric"),
)
ENTRY = '[[model]]\nid = "a/b"\ntask = "fill-mask"\nrandom = { architecture = "bert" }\n'


def cell(folder: Path, label: str = "mlas_cpu") -> Cell:
    """What the baseline is built from."""
    plan = make_plan(load(folder, ENTRY), TARGETS, EVERYTHING, plan_options(opset=BASE))
    return next(one for one in plan.cells() if one.target.label == label)


def hypothesis(opset: int, **values: Any) -> Hypothesis:
    """One that builds with another opset."""
    told = {"id": f"opset-{opset}", "title": f"Opset {opset}", "targets": ("*",), "axis": "opset"}
    return Hypothesis(**{**told, "opset": opset, **values})


def step(one: Hypothesis, **values: Any) -> Step:
    """It, as a trial that is planned."""
    told = {
        "key": one.id, "title": one.title, "hypotheses": (one.id,), "settings": one.settings,
        "changes": to_json(one),
    }  # fmt: skip
    return Step(**{**told, **values})


@dataclass(slots=True)
class FakeMaker:
    """Builds nothing; may be told to fail."""

    runtime: Runtime = CPU
    artifacts: dict[str, str] = field(default_factory=dict)
    """By cell name, what its artifact is; default: its own."""
    failing: dict[str, Exception] = field(default_factory=dict)
    broken: dict[str, Rung] = field(default_factory=dict)
    """A rung that does not hold."""
    components: tuple[str, ...] = ("",)
    made: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        name = "-".join([f"opset{cell.policy.opset}", *session.values(), *cell.policy.build])
        self.made.append(name)
        if name in self.failing:
            raise self.failing[name]
        artifact = self.artifacts.get(name, name)
        digest = artifact.encode().hex().ljust(64, "0")[:64]
        graphs = tuple(Graph(one, Path(f"{artifact}.onnx")) for one in self.components)
        subject = Subject(Artifact(cell.id, digest), graphs, self.runtime)
        making = Making(1.0, ("optimize",), ("export",))
        return Made(name, digest, digest, making, subject)

    def check(self, made: Made) -> tuple[Rung, ...]:
        self.checked.append(made.cell)
        wrong = self.broken.get(made.cell)
        return tuple(wrong if wrong and one.name == wrong.name else one for one in HELD)


Hook = Callable[[str, str, str], Any]
"""From an operation, the key of an arm and its build to an error or an answer; None: as usual."""


class HookedRuntimes(FakeRuntimes):
    """Whose answers a test can replace by what is asked of which build."""

    def __init__(self, times: Mapping[str, int], hook: Hook | None = None) -> None:
        super().__init__({name: always(value) for name, value in times.items()})
        self._hook = hook
        self._builds: dict[str, str] = {}

    def call(
        self,
        runtime: Runtime,
        op: str,
        args: dict[str, Any],
        watching: Watching = UNWATCHED,
        *,
        stage: str,
    ) -> Reply:
        key = args["key"]
        if op == "bench_open":
            self._builds[key] = Path(args["file"]).stem
        told = self._hook(op, key, self._builds[key]) if self._hook else None
        if isinstance(told, BaseException):
            raise told
        if told is not None:
            return Reply(dict(told), 0, 0.0)
        return super().call(runtime, op, args, watching, stage=stage)


@dataclass(slots=True)
class Stage:
    """A tuning with its surroundings; `run` goes on with it as often as a test likes."""

    state: State
    cell: Cell
    times: dict[str, int]
    """Nanoseconds of a run by build."""
    steps: list[Step]
    maker: FakeMaker = field(default_factory=FakeMaker)
    hook: Hook | None = None
    budget: float | None = None
    held: Lease | None = None
    lines: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """Keys of trials as they are settled."""
    rests: list[float] = field(default_factory=list)
    quiet: list[str] = field(default_factory=list)
    now: float = 0.0
    planned: int = 0
    runtimes: HookedRuntimes = field(init=False)

    def begin(self, **values: Any) -> None:
        """Plan it."""
        one = Tuning(
            name=NAME, model=self.cell.model.name, target=self.cell.target.label, cell=self.cell,
            engine="optimum", space="0" * 64, protocol=PROTOCOL, seed=11, min_gain=5.0,
        )  # fmt: skip
        assert self.state.plan_tunings(NAME, [planned(replace(one, **values), 0)])

    def run(self) -> Recorded:
        """Go on with it, as a new process would."""
        (row,) = self.state.tunings(NAME)
        self.runtimes = HookedRuntimes(self.times, self.hook)
        TuningRun(Kept.read(self.state, row, self.held), self.place(), self.budget).run()
        return self.found()

    def played(self) -> Recorded:
        """Plan it and run it to its end."""
        self.begin()
        return self.run()

    def found(self) -> Recorded:
        """As it is recorded."""
        (one,) = recorded(self.state, NAME)
        return one

    def sessions(self) -> int:
        """How many were measured beside a baseline, in the last run."""
        return sum(op == "bench_open" and key == "null" for op, key in self.runtimes.asked)

    def place(self) -> FakePlace:
        """Where it works."""
        return FakePlace(self, Shown(self.lines.append, self._settled))

    def _settled(self, trial: Trial, _place: str) -> None:
        self.told.append(trial.key)


@dataclass(slots=True)
class FakePlace:
    """A place without processes, noise and time."""

    stage: Stage
    shown: Shown

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        return self.stage.maker.make(cell, session)

    def check(self, made: Made) -> tuple[Rung, ...]:
        return self.stage.maker.check(made)

    def plan(self, baseline: Made, found: Benchmark) -> Planned:
        self.stage.planned += 1
        return Planned(self.stage.steps, {"nodes": 7}, "bert", ("a note",))

    def profile(self, glob: str) -> None:
        return None

    def driver(self) -> Driver:
        return Driver(self.stage.runtimes)

    def trace(self, made: Made, graph: Graph) -> Trace:
        raise AssertionError("nothing is traced here")

    def rest(self, seconds: float) -> None:
        self.stage.rests.append(seconds)

    def clock(self) -> float:
        self.stage.now += 0.25
        return self.stage.now

    @contextmanager
    def quiet(self, what: str) -> Iterator[None]:
        self.stage.quiet.append(what)
        yield


Play = Callable[..., Stage]
"""Makes a tuning of hypotheses by opset, with the milliseconds of a run of each."""


def trial(found: Recorded, opset: int) -> Trial:
    """The one with this opset."""
    one = found.trial(f"opset-{opset}")
    assert one is not None
    return one

"""A folder to sweep in, and the real command run there as a process of its own.

Every process started here, and whatever it starts, carries a mark in its environment: that is how
a test knows that nothing was left running.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import psutil

from feed.directory import DirectoryFeed
from machine.reservations import VARIABLE
from state.records import Outcome, SweepInfo
from state.state import State, open_state
from tests.fakes.engine import SITE
from tests.machine.timing import eventually, patient

ROOT = Path(__file__).parents[2]
MARK = "TEST_MILL_MARK"
CLI = ("-m", "flows.cli.main")
PLAIN = ("-m", "tests.sweeps.plain")
"""The same command, but the slots run without Prefect: a start costs a third."""
NOBODY = "http://127.0.0.1:9/api"
"""A Prefect server that does not answer: whoever needs Prefect fails with it."""
INTERRUPTED = "modelmill: interrupted (run the same command again)\n"
"""The last word of a command that is ended and has no better way to go on."""
LIMIT = 120.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed, as one document."""
        return json.loads(self.out)

    def lines(self) -> list[dict[str, Any]]:
        """What it printed, as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(slots=True)
class Running:
    """A command at work, in a session of its own."""

    popen: subprocess.Popen[str]
    _seen: list[str] = field(default_factory=list)

    def until(self, *texts: str) -> None:
        """Read its output until each of these texts has been in a line, in any order."""
        left = set(texts)
        assert self.popen.stdout
        for line in self.popen.stdout:
            self._seen.append(line)
            left = {text for text in left if text not in line}
            if not left:
                return
        raise AssertionError(f"ended without {sorted(left)}: {''.join(self._seen)}{self._errors()}")

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """To the process alone, or (as a terminal does) to its group."""
        with suppress(ProcessLookupError):
            if group:
                os.killpg(self.popen.pid, number)
            else:
                self.popen.send_signal(number)

    def line(self) -> str:
        """The next line of its output; empty when it has ended."""
        assert self.popen.stdout
        self._seen.append(self.popen.stdout.readline())
        return self._seen[-1]

    def end(self, timeout: float = LIMIT) -> Ran:
        """Wait for it."""
        out, err = self.popen.communicate(timeout=patient(timeout))
        return Ran(self.popen.returncode, "".join(self._seen) + out, err)

    def _errors(self) -> str:
        assert self.popen.stderr
        return self.popen.stderr.read()


@dataclass(slots=True)
class Project:
    """A folder with catalogs, and a home below it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def home(self) -> Path:
        return self.folder / ".modelmill"

    @property
    def feed_folder(self) -> Path:
        return self.home / "feed"

    def feed(self) -> DirectoryFeed:
        return DirectoryFeed(self.feed_folder)

    def state(self) -> State:
        return open_state(self.home / "state.db")

    def catalog(self, *models: str, name: str = "catalog.toml") -> str:
        """Write a catalog of models made by `model`."""
        (self.folder / name).write_text("\n".join(models), "utf-8")
        return name

    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == VARIABLE or not name.startswith(("MODELMILL_", "PREFECT_", "COV"))
        }
        python_path = os.pathsep.join((str(ROOT), str(SITE)))
        return {
            **kept,
            "PYTHONPATH": python_path,
            "MODELMILL_ENGINE": "fake",
            "MODELMILL_JOBS": "2",
            "MODELMILL_RUNTIMES": "none",
            MARK: self.mark,
            **self.env,
        }

    @contextmanager
    def start(
        self, *arguments: str, plain: bool = False, under: Sequence[str] = (), **env: str
    ) -> Iterator[Running]:
        """The command at work; what is left of it at the end of the block is killed."""
        popen = subprocess.Popen(
            [*under, sys.executable, *(PLAIN if plain else CLI), *arguments],
            cwd=self.folder,
            env={**self.environment(), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            with popen:
                try:
                    yield Running(popen)
                finally:
                    popen.kill()
        finally:
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def run(self, *arguments: str, plain: bool = True, **env: str) -> Ran:
        """Run the command to its end."""
        with self.start(*arguments, plain=plain, **env) as running:
            return running.end()

    def ok(self, *arguments: str, plain: bool = True, **env: str) -> Ran:
        """The same, and nothing goes wrong."""
        ran = self.run(*arguments, plain=plain, **env)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran

    def session(self, commands: Sequence[Sequence[str]], **env: str) -> list[Ran]:
        """Run commands one after the other in one process; whole but for Prefect, and quick."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.sweeps.session"],
            cwd=self.folder,
            env={**self.environment(), **env},
            input=json.dumps([list(words) for words in commands]),
            capture_output=True,
            text=True,
            timeout=patient(2 * LIMIT),
        )
        assert done.returncode == 0, done.stderr
        return [Ran(*json.loads(line)) for line in done.stdout.splitlines()]

    def processes(self) -> list[psutil.Process]:
        """What carries our mark and runs."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
        return found

    def alone(self, within: float = 15.0) -> bool:
        """Whether everything ends that was started here; children of a killed owner may take a
        moment to notice."""
        return eventually(lambda: not self.processes(), within)

    def sweep(self, stamp: str) -> SweepInfo:
        with self.state() as state:
            info = state.find_sweep(stamp)
            assert info
            return info

    def outcomes(self, stamp: str) -> dict[str, Outcome]:
        """By cell."""
        with self.state() as state:
            info = state.find_sweep(stamp)
            assert info
            return {one.cell: one for one in state.outcomes(info.id)}

    def statuses(self, stamp: str) -> dict[str, int]:
        """How many cells (exports apart) have each status."""
        outcomes = self.outcomes(stamp).values()
        return dict(Counter(str(one.status) for one in outcomes if one.target != "export"))

    def published(self, package: str = "*") -> dict[tuple[str, str], str | None]:
        """Every version of the feed with its tree digest."""
        feed = self.feed()
        names = [name for name in feed.packages() if package in {"*", name}]
        return {
            (one.package, one.version): one.tree for name in names for one in feed.versions(name)
        }

    def ran(self, stamp: str) -> Counter[str]:
        """How often each stage key was really run."""
        with self.state() as state:
            info = state.find_sweep(stamp)
            assert info
            return Counter(run.key for run in state.stage_runs(info.id) if not run.reused)

    def journal(self, name: str = "journal") -> list[str]:
        """What the engine says it has run: the record that does not pass through our hands."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


def model(name: str = "tiny/a", *, extra: str = "", **config: Any) -> str:
    """A catalog entry; `config` instructs the fake engine, `extra` is more TOML for the entry."""
    return (
        f'[[model]]\nid = "{name}"\ntask = "fill-mask"\npriority = "P0"\n{extra}\n'
        f'[model.random]\narchitecture = "bert"\nseed = {crc32(name.encode())}\n'
        f"config = {toml(config)}\n"
    )


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(value[key])}" for key in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def files_below(folder: Path) -> set[str]:
    """Every file, by its path from there."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

"""The folders of a run, and opening its feed, state and target table from the settings.

Each package is imported when it is opened: the feed commands load no database.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.output.activity import waiting_for
from flows.settings.settings import Settings
from matrix.errors import Unusable, UsageError
from matrix.nearest import near
from matrix.slugs import slug

if TYPE_CHECKING:
    from feed.interface import Feed
    from matrix.profiles import Profiles
    from matrix.targets import Targets
    from state.reading import StateReader
    from state.records import SweepInfo
    from state.state import State

HOME_NAME = ".modelmill"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders, all derived from the settings; none is created before it is needed."""

    settings: Settings

    @property
    def home(self) -> Path:
        """The folder above all others that are not set separately."""
        return self.settings.path(self.settings.home)

    @property
    def store(self) -> Path:
        """The content store."""
        where = self.settings.store
        return self.settings.path(where) if where else self.home / "store"

    @property
    def logs(self) -> Path:
        """Logs of cells and engine hosts."""
        return self.home / "logs"

    def log_of(self, stamp: str, cell: str) -> Path:
        """The file that receives everything about a cell."""
        # Readable, safe on every file system, and unique.
        readable = re.sub(r"[^A-Za-z0-9._-]+", "_", cell)[:120]
        name = f"{readable}-{hashlib.sha256(cell.encode()).hexdigest()[:8]}.log"
        return self.logs / stamp / name

    def evidence_of(self, tree: str) -> Path:
        """Where this machine keeps its later evidence about a content."""
        return self.home / "evidence" / f"{tree}.json"

    @property
    def kept(self) -> Path:
        """Kept packages: conflicts and failed verifications."""
        return self.home / "kept"

    @property
    def knowledge(self) -> Path:
        """The user's findings, and the evidence of all."""
        where = self.settings.knowledge
        return self.settings.path(where) if where else self.home / "knowledge"

    @property
    def packages(self) -> Path | None:
        """Where `--keep-local` puts published packages."""
        return self.home / "packages" if self.settings.keep_local else None

    @property
    def large_temp(self) -> Path | None:
        """Where temporary folders for whole packages go; None: where the system puts them."""
        return self.home if self.home.is_dir() and os.access(self.home, os.W_OK) else None

    def prepare(self) -> None:
        """Make the home folder. Raises `Unusable`."""
        try:
            # Not in a folder with other content, which Git would ignore too.
            ours = not self.home.exists() or self.home.name == HOME_NAME
            self.logs.mkdir(parents=True, exist_ok=True)
            ignore = self.home / ".gitignore"
            if ours and not ignore.exists():
                ignore.write_text("# written by modelmill\n*\n", "utf-8")
        except OSError as error:
            text = f"cannot make the folder {self.home}: {error.strerror}"
            raise Unusable(text, hint="choose one with --home") from None
        if not os.access(self.home, os.W_OK):
            raise Unusable(f"the folder {self.home} is read-only", hint="choose one with --home")

    def tidy(self) -> None:
        """Remove the working folders of killed runs."""
        from machine.scratch import sweep_dead

        for root in (self.home / "work", self.store / "tmp", self.logs / "scratch"):
            sweep_dead(root)

    @property
    def state(self) -> Path | str:
        """The file or the URL of the state."""
        where = self.settings.state
        if where and "://" in where:
            return where
        return self.settings.path(where) if where else self.home / "state.db"

    def has_state(self) -> bool:
        """Whether there is a state to read; a URL is assumed to name one."""
        where = self.state
        return isinstance(where, str) or where.exists()

    def read_state(self) -> StateReader:
        """The state for a command that only reads: a file need not be writable."""
        if isinstance(where := self.state, str):
            return self.open_state(must_exist=True)
        waiting_for("opening the state")
        from state.reading import read_state

        self._expect_state()
        return read_state(where)

    def open_state(self, *, must_exist: bool = False) -> State:
        """The state database, migrated; `must_exist`: nothing is created."""
        waiting_for("opening the state")
        from state.state import open_state

        if must_exist:
            self._expect_state()
        return open_state(self.state)

    def _expect_state(self) -> None:
        if not self.has_state():
            hint = "run a sweep first, or name it with --state"
            above = [folder / HOME_NAME for folder in self.settings.cwd.parents]
            if homes := [home for home in above if (home / "state.db").is_file()]:
                nearest = os.path.relpath(homes[0], self.settings.cwd)
                hint = f"sweeps of a folder above are in --home {nearest}"
            raise Unusable(f"there is no state at {self.state}", hint=hint)

    def open_feed(self) -> Feed:
        """The feed."""
        from feed.open import open_feed

        spec = self.settings.feed or str(self.home / "feed")
        return open_feed(spec, base=self.settings.cwd)

    def targets(self) -> Targets:
        """The targets of the chosen matrix and those that are named, with the user's own rows."""
        from matrix.targets import load_targets

        own = self.settings
        return load_targets(self.own_targets).of(own.matrix, (*own.target, *own.ep))

    def profiles(self) -> Profiles:
        """The device profiles with the user's own."""
        from matrix.profiles import load_profiles

        return load_profiles(self.targets(), self.own_targets)

    @property
    def own_targets(self) -> Path | None:
        """The file with the user's own targets and profiles."""
        where = self.settings.targets_file
        return self.settings.path(where) if where else None


def find_sweep(state: StateReader, stamp: str | None) -> SweepInfo:
    """The sweep of that stamp, or the one begun last."""
    info = state.find_sweep(slug(stamp) if stamp else None)
    if info is None:
        known = [one.stamp for one in state.sweeps()]
        what = f"no sweep '{stamp}'" if stamp else "no sweep"
        listed = f"known: {', '.join(known[:5])}" if known else "start one: modelmill sweep CATALOG"
        hint = near(stamp or "", known) or listed
        raise UsageError(f"{what} in the state {state.label}", hint=hint)
    return info

"""Exchanges results of stages through the feed, so that a fleet builds each of them only once.

The key of a stage covers everything that can change its bytes, so results with the same key are
equal wherever they were built. Each result is a version of its own, named by its key, in one
package per tuning, which can be deleted when the tuning is over. A machine with other tools has
other keys and builds for itself. Machines that sign their packages sign results too, and take no
others: what is taken becomes part of what they sign.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from feed.checked import hash_file
from feed.interface import Feed, LocalFile
from feed.publisher import Publisher
from feed.reader import pull
from flows.packages.run_records import statement_files
from flows.packages.signing import signature_check
from flows.settings.settings import Settings
from machine.files import files_below, read_json
from machine.waits import Told
from matrix.codec import from_json
from matrix.digest import tree_digest
from matrix.errors import MillError
from matrix.naming import render
from workers.store import Action, Store

RECORD = "action.json"
"""What the store knows of the stage."""
STAGE = "stage"
"""What the statement about a result calls it."""
FILES = "files"
"""The folder of its outputs."""
LIMIT = 600.0
"""Seconds to publish one result; then this machine keeps it for itself."""
_KEY = 40
"""Letters of a key in a version."""


def stages_package(template: str, stamp: str) -> str:
    """The package in which the machines of a tuning leave the results of stages."""
    return render(template, f"stages-{stamp}", "")


@dataclass(slots=True)
class FeedExchange:
    """What `workers.build.stage_runner.Exchange` asks for, by way of a feed."""

    feed: Feed
    store: Store
    settings: Settings
    stamp: str
    cancel: threading.Event
    told: Told
    _there: set[str] = field(default_factory=set)
    """Keys whose results are known to be in the feed."""

    @property
    def package(self) -> str:
        """Of all results of the tuning."""
        return stages_package(self.settings.package, self.stamp)

    def take(self, key: str) -> Action | None:
        """From the feed, every digest checked; None: it does not exist or cannot be fetched."""
        try:
            if self.feed.find(self.package, self._version(key)) is None:
                return None
            with self.store.scratch.borrow("taken") as folder:
                action = self._taken(key, folder / "stage")
            self._there.add(key)
            return action
        except (MillError, OSError, ValueError) as error:
            self.told(f"a stage result of another machine is not used: {error}")
            return None

    def _taken(self, key: str, folder: Path) -> Action:
        check = signature_check(self.settings, signs=True)
        pulled = pull(self.feed, self.package, self._version(key), folder, signature=check)
        if pulled.kind not in {STAGE, ""}:
            raise ValueError(f"it states to be a {pulled.kind}")
        record = from_json(read_json(folder / RECORD), Action)
        if record.key != key:
            raise ValueError(f"it is the result of another stage ({record.key[:_KEY]})")
        files = folder / FILES
        found = {hash_file(one, one.relative_to(files).as_posix()) for one in files_below(files)}
        if found != set(record.files):
            raise ValueError("its files are not those that were made")
        return self.store.ingest(files, replace(record, files=()))

    def give(self, action: Action) -> None:
        """Publish it. A result that is there already stays, and a feed that is away costs a build
        elsewhere."""
        if action.key in self._there:
            return
        with suppress(MillError, OSError):
            if self.feed.find(self.package, self._version(action.key)) is None:
                self._publish(action)
            self._there.add(action.key)

    def _publish(self, action: Action) -> None:
        with self.store.scratch.borrow("given") as folder:
            version, record = self._version(action.key), folder / RECORD
            record.write_text(json.dumps(asdict(action), sort_keys=True), "utf-8")
            files = [LocalFile(hash_file(record, RECORD), record)]
            files += [
                LocalFile(replace(file, path=f"{FILES}/{file.path}"), self.store.source(file))
                for file in action.files
            ]
            files += statement_files(self.settings, STAGE, self.package, version, files, folder)
            Publisher(self.feed, tries=2).publish(
                self.package,
                version,
                files,
                description_text=f"stage result: {action.subject}",
                tree=tree_digest(file.entry for file in files),
                timeout=LIMIT,
                cancel=self.cancel,
            )

    def _version(self, key: str) -> str:
        return f"0.0.0-{self.stamp}-stage-{key[:_KEY]}"

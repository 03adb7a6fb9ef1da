"""Who builds in the world: two stages, whose results go through the product's store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from machine.files import remove_tree
from machine.waits import Cancelled
from matrix.digest import LocalFile, tree_digest
from matrix.model import Cell
from tests.fakes.feed import tree_of as digest_of
from tests.fakes.feed import write_files
from tests.simulation.world import Machine, Program, World
from workers.build.built import Built, StageRun
from workers.errors import CorruptBlob
from workers.host.watch import Watching
from workers.store import Action, Store

FILE = "model.onnx"
WEIGHTS = b"weights" * 50


def content_of(cell: str) -> bytes:
    """The model that every correct build of a cell or export makes."""
    return f"model of {cell}\n".encode() * 4


def tree_of(cell: str, folder: Path) -> str:
    """The digest of that package."""
    return digest_of(write_files(folder, {FILE: content_of(cell)}))


class SimulatedBuilder:
    """Builds with the real store: an export for the model, then a file for the cell."""

    def __init__(
        self,
        world: World,
        program: Program,
        store: Store,
        work: Path,
        lost: Callable[[Machine, str], None],
    ) -> None:
        self._world = world
        self._lost = lost
        self._program = program
        self._store = store
        self._work = work

    def begin_model(self) -> None:
        """Nothing is kept between models."""

    def close(self) -> None:
        """Nothing to end."""

    def build(
        self, cell: Cell, watching: Watching, *, export_version: str | None = None, **_how: object
    ) -> Built:
        """A package whose model has the content of the cell."""
        named = f"{cell.model.name}@export" if export_version else cell.id
        with ExitStack() as used:
            used.enter_context(self._store.in_use())
            made = self._action(f"export {cell.model.name}", watching, lambda: WEIGHTS)
            model = partial(self._model, made, named)
            result = self._action(f"model {named}", watching, model)
            folder = self._work / str(self._world.mark())
            for _ in range(3):
                try:
                    self._store.materialize(result.files, folder)
                    break
                except (CorruptBlob, OSError) as error:
                    self._lost(self._program.machine, str(error))
                    result = self._action(f"model {named}", watching, model)
            self._world.pause(0.5)
            files = tuple(LocalFile(entry, folder / entry.path) for entry in result.files)
            run = StageRun("model", "", result.key, {}, False, 1.0, 1, 1)
            return Built(
                cell_id=named,
                folder=folder,
                files=files,
                tree=tree_digest(result.files),
                manifest={"stages": []},
                build_record={"stages": []},
                stages=(run,),
                seconds=1.0,
                store=self._store,
                used=used.pop_all(),
            )

    def _action(self, subject: str, watching: Watching, make: Callable[[], bytes]) -> Action:
        key = subject.encode().hex()[:64].ljust(64, "0")
        if (found := self._store.lookup(key)) is not None:
            return found
        for _ in range(4):
            self._world.pause(self._world.random.uniform(0.5, 10.0))
            if watching.cancel is not None and watching.cancel.is_set():
                raise Cancelled("the lease is gone")
            watching.progress(subject)
        with self._store.scratch.borrow("stage") as folder:
            (folder / FILE).write_bytes(make())
            self._world.pause(0.05)
            action = Action(key, {}, (), {}, {}, 1.0, 1, subject)
            return self._store.ingest(folder, action)

    def _model(self, made: Action, named: str) -> bytes:
        """The stage reads the export, as the store gives it out."""
        folder = self._work / f"input-{self._world.mark()}"
        try:
            self._store.materialize(made.files, folder)
            right = (folder / FILE).read_bytes() == WEIGHTS
        except (CorruptBlob, OSError) as error:
            self._lost(self._program.machine, str(error))
            right = True  # the real stage would be run again after the export
        remove_tree(folder)
        return content_of(named) if right else b"garbage"


class Believing:
    """Verifies and attests nothing."""

    def verify(self, built: Built, *_how: object) -> Built:
        return built

    def attest(self, built: Built, _cell: Cell) -> Built:
        return built

    def close(self) -> None:
        """Nothing to end."""

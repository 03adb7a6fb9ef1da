"""The gate between building and publishing: a ladder of rungs, each with its evidence.

package (links) + input values --> checker in its own host process --> rungs
                                        ^
     notes of the store: the same bytes on the same runtimes are not run twice
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matrix.digest import BUILD_RECORD, MANIFEST, tree_digest, value_digest
from matrix.status import FailureClass
from workers.built import Built
from workers.errors import BuildFailed, CorruptBlob
from workers.host.client import EngineSpec, Host
from workers.package import json_bytes, write_record
from workers.stages import Rung

LADDER = ("integrity", "loads")
CHECKER = EngineSpec("checker", "workers.checker:Checker")
STAGE = "verify"
VERIFIED = "verified"
"""The kind of note that keeps results."""
VERSION = 1
"""Of the rungs themselves: raise it when one of them looks closer than before."""


class VerifyFailed(BuildFailed):
    """A rung that must pass did not; the package is not to be published."""

    def __init__(self, built: Built, failed: Sequence[Rung]) -> None:
        self.built = built
        """With all the evidence; its folder is still there."""
        first = failed[0]
        super().__init__(
            FailureClass.VERIFY,
            STAGE,
            f"{first.name} failed: {first.detail}",
            hint="the evidence is in the package's build.json",
        )


class Verifier:
    """Climbs the ladder in its own warm process; results are shared through the store."""

    def __init__(self, host: Host, ladder: Sequence[str] = LADDER) -> None:
        self._host = host
        self._ladder = tuple(ladder)
        self._runtimes: dict[str, str] | None = None

    def verify(
        self,
        built: Built,
        *,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
        log: Path | None = None,
    ) -> Built:
        """The same package with evidence in its build record. Raises `VerifyFailed`."""
        runtimes = self.runtimes()
        key = self._key(built, runtimes)
        rungs = self._remembered(built, key)
        if rungs is None:
            rungs = self._climb(built, timeout, cancel, log)
            if all(rung.passed for rung in rungs):  # a failure may be the machine's: look again
                built.store.notes.write(VERIFIED, key, [asdict(rung) for rung in rungs])
        proven = with_evidence(built, rungs, runtimes)
        if failed := [rung for rung in rungs if rung.passed is False]:
            raise VerifyFailed(proven, failed)
        return proven

    def runtimes(self) -> dict[str, str]:
        """Versions of what the rungs run on."""
        if self._runtimes is None:
            self._runtimes = dict(self._host.call("runtimes", {}, stage=STAGE).result)
        return self._runtimes

    def close(self) -> None:
        """End the process."""
        self._host.close()

    def _key(self, built: Built, runtimes: dict[str, str]) -> str:
        """By content alone: equal artifacts of different targets are run once."""
        content = tree_digest(file.entry for file in built.files if file.entry.path != MANIFEST)
        return value_digest(
            {
                "content": content,
                "inputs": tree_digest(built.inputs),
                "runtimes": runtimes,
                "ladder": [VERSION, *self._ladder],
            }
        )

    def _remembered(self, built: Built, key: str) -> tuple[Rung, ...] | None:
        note: Any = built.store.notes.read(VERIFIED, key)
        try:
            return tuple(Rung(**rung) for rung in note) if note else None
        except TypeError:
            return None

    def _climb(
        self,
        built: Built,
        timeout: float | None,
        cancel: threading.Event | None,
        log: Path | None,
    ) -> tuple[Rung, ...]:
        models = [
            file.entry.path
            for file in built.files
            if file.entry.path.endswith(".onnx") and not file.entry.path.startswith("export/")
        ]
        if not models:
            return (Rung("integrity", False, "the package has no .onnx file"),)
        with built.store.scratch.borrow(STAGE) as inputs:
            try:
                built.store.materialize(built.inputs, inputs)
            except (CorruptBlob, OSError) as error:
                text = f"the input values cannot be had: {error}"
                raise BuildFailed(FailureClass.DISK, STAGE, text) from error
            args = {
                "folder": str(built.folder.absolute()),
                "models": models,
                "inputs": str(inputs.absolute()),
                "rungs": list(self._ladder),
            }
            reply = self._host.call(
                "climb", args, stage=STAGE, timeout=timeout, cancel=cancel, log=log
            )
        return tuple(Rung(**answer) for answer in reply.result)


def with_evidence(built: Built, rungs: Sequence[Rung], runtimes: dict[str, str]) -> Built:
    """Write the evidence into the build record, which is no part of the package's identity."""
    record = {
        **built.build_record,
        "verification": [asdict(rung) for rung in rungs],
        "runtimes": runtimes,
    }
    written = write_record(built.folder, BUILD_RECORD, json_bytes(json.loads(json.dumps(record))))
    others = tuple(file for file in built.files if file.entry.path != BUILD_RECORD)
    return replace(built, files=(*others, written), build_record=record, evidence=tuple(rungs))

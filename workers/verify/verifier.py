"""Judges a package between building and publishing, and records the evidence.

subject --> inspect (checker's process) --------+
        --> measure (a process per runtime) ----+--> observed --> rungs --> evidence, verdict
                     ^
     notes in the store: equal bytes are examined once per runtime
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matrix.digest import BUILD_RECORD, LocalFile
from matrix.status import FailureClass
from matrix.verification import RUNGS, Rung
from workers import code
from workers.build.built import Built
from workers.build.claim import Claim
from workers.build.package import compact_bytes, write_record
from workers.errors import BuildFailed, CorruptBlob
from workers.host.watch import UNWATCHED, Watching
from workers.runtimes.pool import STAGE, Runtimes
from workers.verify.ladder.levels import DEFAULT_LEVEL, failing, up_to
from workers.verify.ladder.observed import Observed
from workers.verify.ladder.reference import Exported
from workers.verify.ladder.rungs import climb, damaged
from workers.verify.ladder.subject import Subject
from workers.verify.measuring import Measuring, Notes

INSPECTED = "inspected"
"""The kind of note that keeps what inspection found."""
CODE = ("workers.verify.checker",)
"""A change of this module, or of what it imports, makes earlier notes worthless."""
STATIC = {"integrity", "policy"}
"""Rungs for which no model has to run."""


class VerifyFailed(BuildFailed):
    """A required rung does not hold, so the package must not be published."""

    def __init__(self, built: Built, failed: Sequence[Rung]) -> None:
        self.built = built
        """With all the evidence; its folder still exists."""
        # A rung that could not be run follows from a failed one, which explains more.
        first = next((rung for rung in failed if rung.passed is False), failed[0])
        said = "failed" if first.passed is False else "could not be judged"
        hint = "the evidence is in the package's build.json"
        below = RUNGS[: RUNGS.index(failed[0].name)]
        if first.passed is None and below:
            other = f"or sweep with --verify {below[-1]}"
            hint = f"verify it on a machine that can run it, {other}; {hint}"
        super().__init__(
            FailureClass.VERIFY, STAGE, f"{first.name} {said}: {first.detail}", hint=hint
        )


@dataclass(frozen=True, slots=True)
class Climbed:
    """The result for a package."""

    claim: Claim
    level: str
    rungs: tuple[Rung, ...]
    observed: Observed
    versions: Mapping[str, str]

    @property
    def failed(self) -> list[Rung]:
        """The rungs that do not hold."""
        return failing(self.rungs)

    def to_json(self) -> dict[str, Any]:
        """As the build record keeps it."""
        compared = self.observed.compared
        return {
            "verification": [asdict(rung) for rung in self.rungs],
            "verdict": {"level": self.level, "reached": not self.failed},
            "rules": {name: one for name, one in asdict(self.claim.rules).items() if one},
            "runtimes": [
                *(run.to_json() for run in self.observed.runs),
                *({**one.to_json(), "own": True} for one in self.observed.missing),
            ],
            "verifier": dict(self.versions),
            **({"opening": dict(self.observed.opening)} if self.observed.opening else {}),
            **({"reference": compared.to_json()} if compared else {}),
        }


class Verifier:
    """Verifies packages up to a level; results are shared through the store."""

    def __init__(
        self, runtimes: Runtimes, level: str = DEFAULT_LEVEL, *, again: bool = False
    ) -> None:
        """`again`: run what has run already, because a provider may change without its version."""
        self.level = level
        self._again = again
        self.runtimes = runtimes
        self._exported = Exported()
        self._versions: dict[str, str] | None = None

    def verify(self, built: Built, watching: Watching = UNWATCHED) -> Built:
        """The same package with evidence in its build record. Raises `VerifyFailed`."""
        climbed = self.climb(Subject.of(built), watching)
        proven = with_evidence(built, climbed)
        if climbed.failed:
            raise VerifyFailed(proven, climbed.failed)
        return proven

    def climb(self, subject: Subject, watching: Watching = UNWATCHED) -> Climbed:
        """All rungs up to the level, each judged by itself."""
        wanted = up_to(self.level)
        observed = Observed(
            files=subject.file_problems(),
            passes=subject.blocked_passes(),
            sampled=subject.sampled(),
            calibrated=subject.calibrated(),
            samples=max(map(len, subject.samples().values()), default=0),
        )
        notes = Notes(subject.store, self._again)
        try:
            self._inspect(observed, subject, watching, notes)
            observed.stopped = damaged(subject.claim, observed)
            if set(wanted) - STATIC and observed.models and not observed.stopped:
                with_task = "task" in wanted
                Measuring(
                    self.runtimes, self._exported, subject, watching, notes, with_task
                ).measure(observed)
        except (CorruptBlob, OSError) as error:
            text = f"the export or the input values cannot be read: {error}"
            raise BuildFailed(FailureClass.DISK, STAGE, text) from error
        rungs = tuple(climb(name, subject.claim, observed) for name in wanted)
        climbed = Climbed(subject.claim, self.level, rungs, observed, self.versions())
        if all(rung.passed is not False for rung in rungs):
            # The machine or damaged files may have caused a failure: it is examined again.
            notes.keep()
        return climbed

    def versions(self) -> dict[str, str]:
        """Versions of the tools that inspect."""
        if self._versions is None:
            self._versions = dict(self.runtimes.checker.call("versions", {}, stage=STAGE).result)
        return self._versions

    def close(self) -> None:
        """End the processes."""
        self._exported.drop()
        self.runtimes.close()

    def _inspect(
        self, observed: Observed, subject: Subject, watching: Watching, notes: Notes
    ) -> None:
        models = subject.models
        if not models:
            return
        by = {"tools": self.versions(), "code": code.digest(*CODE)}
        observed.models = notes.find(
            INSPECTED,
            {"content": subject.content, **by},
            lambda: self._inspect_models(subject.folder, models, watching),
        )
        export = subject.export
        if not subject.claim.blocked_ops or export is None:
            return

        def inspect_export() -> dict[str, Any]:
            with subject.scratch.borrow("export") as folder:
                export.place(folder)
                names = {one: subject.exported(one) for one in models}
                there = {one: file for one, file in names.items() if (folder / file).is_file()}
                found = self._inspect_models(folder, list(there.values()), watching)
                return {one: found[file] for one, file in there.items()}

        observed.exported = notes.find(INSPECTED, {"export": export.tree, **by}, inspect_export)

    def _inspect_models(
        self, folder: Path, models: list[str], watching: Watching
    ) -> dict[str, Any]:
        args = {"folder": str(folder.absolute()), "models": models}
        return dict(self.runtimes.checker.call("inspect", args, watching, stage=STAGE).result)


def with_evidence(built: Built, climbed: Climbed) -> Built:
    """Write the evidence into the build record, which does not count for the package's identity."""
    record = {**built.build_record, **climbed.to_json()}
    files = {file.entry.path: file for file in built.files}
    compared = climbed.observed.compared
    for entry in compared.files if compared and compared.fresh else ():
        files[entry.path] = LocalFile(entry, built.folder / entry.path)
    files[BUILD_RECORD] = write_record(built.folder, BUILD_RECORD, compact_bytes(record))
    all_files = tuple(files.values())
    return replace(built, files=all_files, build_record=record, evidence=climbed.rungs)

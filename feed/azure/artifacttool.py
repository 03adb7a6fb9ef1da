"""Runs ArtifactTool: a program with an argument list, a log and an exit code."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from feed.azure.address import Address
from feed.azure.child import Child, End, Outcome, RunLimits
from feed.azure.credentials import RENEW, Credentials
from feed.azure.events import BYTES, read_event
from feed.azure.secret import Secret, redact
from feed.azure.verdict import CRASH_HINT, Run, judge_run
from feed.azure.wire import TokenRefused
from feed.errors import FeedError, OutcomeUnknown, Unauthorized, Unavailable
from feed.interface import Progress
from matrix.credentials import without_credentials

TOKEN_VARIABLE = "MODELMILL_ARTIFACTTOOL_TOKEN"  # noqa: S105 - a name, not a token
"""How the tool gets its token: the name goes into the argument list, never the value."""

_BEAT = 0.5
"""Seconds between two calls of a caller's progress."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a successful run reports."""

    version: str
    manifest_id: str


class ArtifactTool:
    """Runs one executable for one feed. Safe to use from several threads."""

    def __init__(
        self,
        executable: Callable[[], Path],
        address: Address,
        credentials: Credentials,
        limits: RunLimits,
        environ: Mapping[str, str],
    ) -> None:
        self._executable = executable
        self._address = address
        self._credentials = credentials
        self._limits = limits
        self._environ = without_credentials(environ)
        self._lock = threading.Lock()
        self._running: set[Child] = set()

    def publish(
        self,
        package: str,
        version: str,
        folder: Path,
        description: str,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Publish a folder as one version."""
        arguments = [*self._verb("publish", package, version, folder), "--description", description]
        run = Run(f"publish of {package} {version}", True, self._credentials.identity)
        return self._run(run, arguments, folder, timeout, progress)

    def download(
        self,
        package: str,
        version: str,
        folder: Path,
        paths: Sequence[str] = (),
        *,
        progress: Progress | None = None,
    ) -> Result:
        """Download a version, or only some of its paths, into an empty folder."""
        arguments = self._verb("download", package, version, folder)
        if paths:
            arguments += ["--filter", ";".join(paths)]
        run = Run(f"download of {package} {version}", False, self._credentials.identity)
        return self._run(run, arguments, folder, None, progress)

    def check(self, folder: Path) -> None:
        """Start the tool to see that it can start here; raises `Unauthorized` if it cannot."""
        child = Child([str(self._executable()), "--help"], self._environ, folder)
        outcome = self._supervise(child, lambda _line: False, RunLimits(60.0, 60.0))
        crashed = outcome.code < 0 or outcome.code in {126, 127, 134}
        if outcome.end is not End.EXITED or crashed:
            said = next((line for line in reversed(outcome.log) if line.strip()), "it said nothing")
            raise Unauthorized(f"ArtifactTool does not start: {said[:300]}", hint=CRASH_HINT)

    def stop(self) -> None:
        """End all runs of this tool at once."""
        with self._lock:
            for child in self._running:
                child.stop()

    def _verb(self, verb: str, package: str, version: str, folder: Path) -> list[str]:
        scope = ["--project", self._address.project] if self._address.project else []
        return [
            *("universal", verb, "--service", self._address.service),
            *("--patvar", TOKEN_VARIABLE, "--feed", self._address.feed),
            *("--package-name", package, "--package-version", version, "--path", str(folder)),
            *scope,
            *("--verbosity", "Information"),
        ]

    def _run(
        self,
        run: Run,
        arguments: Sequence[str],
        folder: Path,
        timeout: float | None,
        progress: Progress | None,
    ) -> Result:
        """Run with a fresh token; if it is refused, once more with another one."""
        end = None if timeout is None else time.monotonic() + timeout
        token = self._credentials.token(fresh=True)
        try:
            return self._attempt(run, arguments, folder, token, end, progress)
        except TokenRefused:
            token = self._credentials.renew(token)
        try:
            return self._attempt(run, arguments, folder, token, end, progress)
        except TokenRefused as refused:
            raise Unauthorized(
                f"Azure DevOps does not accept {self._credentials.identity}: {refused.message}",
                hint=RENEW,
            ) from refused

    def _attempt(
        self,
        run: Run,
        arguments: Sequence[str],
        folder: Path,
        token: Secret,
        end: float | None,
        progress: Progress | None,
    ) -> Result:
        command = [str(self._executable()), *arguments]
        child = Child(command, {**self._environ, TOKEN_VARIABLE: token.reveal()}, folder.parent)
        limits = self._limits
        if end is not None:
            limits = replace(limits, total=min(limits.total, max(0.0, end - time.monotonic())))
        outcome = self._supervise(child, _Reporter(progress), limits)
        outcome = replace(outcome, log=tuple(redact(line, [token]) for line in outcome.log))
        error = judge_run(run, outcome)
        if error:
            raise error
        return _read_result(run, outcome.stdout)

    def _supervise(
        self, child: Child, on_line: Callable[[str | None], bool], limits: RunLimits
    ) -> Outcome:
        with self._lock:
            self._running.add(child)
        try:
            return child.run(on_line, limits)
        except OSError as error:
            raise Unauthorized(f"ArtifactTool does not start: {error}", hint=CRASH_HINT) from error
        finally:
            with self._lock:
                self._running.discard(child)


class _Reporter:
    """Turns the log into progress for the caller, and tells the supervisor what moved."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._seen: dict[str, int] = {}
        self._bytes = (0, 0)
        self._next = 0.0

    def __call__(self, line: str | None) -> bool:
        moved = False
        if line is not None:
            event = read_event(line)
            if event.done > self._seen.get(event.name, 0):
                self._seen[event.name] = event.done
                moved = True
                if event.name in BYTES:
                    self._bytes = (event.done, max(event.total, event.done))
        now = time.monotonic()
        if self._progress and now >= self._next:
            self._next = now + _BEAT
            # Without news too: this is how a caller can end a run that says nothing.
            self._progress(*self._bytes)
        return moved


def _read_result(run: Run, stdout: str) -> Result:
    try:
        data = json.loads(stdout[stdout.index("{") :])
        return Result(str(data["Version"]), str(data["ManifestId"]))
    except (ValueError, KeyError, TypeError) as error:
        kind: type[FeedError] = OutcomeUnknown if run.commits else Unavailable
        raise kind(f"{run.what}: ArtifactTool ended well but did not report a result") from error

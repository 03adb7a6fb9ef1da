"""Runs ArtifactTool: a program with an argument list, a log and an exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from feed.azure.address import Address
from feed.azure.child import End, Outcome, RunLimits
from feed.azure.child import run as run_child
from feed.azure.credentials import Credentials, Secret, redact, with_token
from feed.azure.failures import BYTES, CRASH_HINT, TOOL_HINT, Run, judge_run, read_event
from feed.errors import FeedError, OutcomeUnknown, Unauthorized, Unavailable
from feed.interface import Progress
from matrix.codec import parse_json

TOKEN_VARIABLE = "MODELMILL_ARTIFACTTOOL_TOKEN"  # noqa: S105 - a name, not a token
"""How the tool gets its token: the name goes into the argument list, never the value."""

_FATAL_ON_WINDOWS = 0xC0000000
"""Codes from here on are the system's: a library that is missing, an access violation, ..."""
_BEAT = 0.5
"""Seconds between two calls of a caller's progress."""


@dataclass(frozen=True, slots=True)
class ArtifactTool:
    """Runs one executable for one feed. Safe to use from several threads."""

    _executable: Callable[[], Path]
    _address: Address
    _credentials: Credentials
    _limits: RunLimits
    _environ: Mapping[str, str]
    """Without credentials: the tool gets its own token."""

    def publish(
        self,
        package: str,
        version: str,
        folder: Path,
        description: str,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Publish a folder as one version; answers the id of the manifest that was registered."""
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
    ) -> None:
        """Download a version, or only some of its paths, into an empty folder."""
        arguments = self._verb("download", package, version, folder)
        if paths:
            arguments += ["--filter", ";".join(paths)]
        run = Run(f"download of {package} {version}", False, self._credentials.identity)
        self._run(run, arguments, folder, None, progress)

    def check(self, folder: Path) -> None:
        """Start the tool to see that it can start here; raises `Unauthorized` if it cannot."""
        command = [str(self._executable()), "--help"]
        limits = RunLimits(60.0, 60.0)
        outcome = _start(command, self._environ, folder, _Reporter(None), limits)
        code = outcome.code
        crashed = code < 0 or code in {126, 127, 134} or code >= _FATAL_ON_WINDOWS
        if outcome.end is not End.EXITED or crashed:
            said = next((line for line in reversed(outcome.log) if line.strip()), "it said nothing")
            raise Unauthorized(f"ArtifactTool does not start: {said[:300]}", hint=CRASH_HINT)

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
    ) -> str:
        end = None if timeout is None else time.monotonic() + timeout
        command = [str(self._executable()), *arguments]

        def attempt(token: Secret) -> str:
            env = {**self._environ, TOKEN_VARIABLE: token.reveal()}
            limits = self._limits
            if end is not None:
                limits = replace(limits, total=min(limits.total, max(0.0, end - time.monotonic())))
            outcome = _start(command, env, folder.parent, _Reporter(progress), limits)
            outcome = replace(outcome, log=tuple(redact(line, [token]) for line in outcome.log))
            error = judge_run(run, outcome)
            if error:
                raise error
            return _manifest_id(run, outcome.stdout)

        return with_token(self._credentials, attempt, fresh=True)


def _start(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    reporter: _Reporter,
    limits: RunLimits,
) -> Outcome:
    try:
        return run_child(command, env, cwd, reporter.on_line, reporter.on_beat, limits)
    except OSError as error:
        # An executable that is there and does not start lacks what it was built for.
        there = os.access(command[0], os.X_OK)
        raise Unauthorized(
            f"ArtifactTool does not start: {command[0]}: {error.strerror}",
            hint=CRASH_HINT if there else TOOL_HINT,
        ) from error


class _Reporter:
    """Turns the log into progress for the caller, and says which lines mean progress."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._seen: dict[str, int] = {}
        self._bytes = (0, 0)
        self._next = 0.0

    def on_line(self, line: str) -> bool:
        event = read_event(line)
        if event.done <= self._seen.get(event.name, 0):
            return False
        self._seen[event.name] = event.done
        if event.name in BYTES:
            self._bytes = (event.done, max(event.total, event.done))
        return True

    def on_beat(self) -> None:
        now = time.monotonic()
        if self._progress and now >= self._next:
            self._next = now + _BEAT
            # Without news too: this is how a caller can end a run that says nothing.
            self._progress(*self._bytes)


def _manifest_id(run: Run, stdout: str) -> str:
    try:
        data = parse_json(stdout[stdout.index("{") :])
        return str(data["ManifestId"])
    except (ValueError, KeyError, TypeError) as error:
        kind: type[FeedError] = OutcomeUnknown if run.commits else Unavailable
        raise kind(f"{run.what}: ArtifactTool succeeded but did not report a result") from error

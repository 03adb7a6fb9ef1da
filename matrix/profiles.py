"""Device profiles: what a compiled cell is made for. All of it is data, beside the targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from matrix.errors import PlanError, Problem, UsageError
from matrix.model import Profile
from matrix.nearest import hint, quote
from matrix.reader import Entry, parse_toml, read_text
from matrix.targets import Targets, check_label

DATA = Path(__file__).parent / "data" / "profiles.toml"
BACKENDS = ("api", "session")
NEVER = {
    "CPUExecutionProvider": "it runs the ONNX model as it is",
    "DmlExecutionProvider": "DirectML keeps no compiled form",
    "CUDAExecutionProvider": "its kernels are compiled already",
    "MIGraphXExecutionProvider": "it writes no EPContext model",
    "WebGpuExecutionProvider": "it writes no EPContext model",
}
"""Providers that cannot compile ahead of time, with the reason."""


class Profiles:
    """All profiles in order, found by label."""

    def __init__(
        self, rows: Mapping[str, Profile], targets: Targets, tried: Mapping[str, str]
    ) -> None:
        self._rows = dict(rows)
        self.tried = tried
        """What has been tried of each, where its row says so: no part of any package."""
        self._targets = targets

    def __iter__(self) -> Iterator[Profile]:
        return iter(self._rows.values())

    def get(self, name: str) -> Profile:
        """The profile of that label. Raises `UsageError`; it names providers that never compile."""
        found = self._rows.get(name.strip().casefold().replace("-", "_"))
        if found is not None:
            return found
        provider = self._targets.provider_called(name)
        labels = ", ".join(self._rows)
        if provider in NEVER:
            raise UsageError(
                f"{provider} cannot compile ahead of time: {NEVER[provider]}",
                hint=f"profiles that can: {labels}",
            )
        if not provider:
            raise UsageError(f"unknown profile {quote(name)}", hint=hint(name, self._rows))
        providers = {row.label: row.provider for row in self._targets.every}
        fitting = ", ".join(row.label for row in self if providers[row.target] == provider)
        none = "it has no profile here; write one into a targets file: docs/compile.md"
        raise UsageError(
            f"{quote(name)} is not a profile: {provider} is compiled for a device",
            hint=f"name one of its profiles: {fitting}" if fitting else none,
        )

    def for_target(self, label: str) -> tuple[Profile, ...]:
        """The profiles that compile cells of a target."""
        return tuple(row for row in self if row.target == label)


def load_profiles(targets: Targets, extra: Path | None = None) -> Profiles:
    """The shipped profiles, and after them those of the user's own targets file."""
    problems: list[Problem] = []
    rows: dict[str, Profile] = {}
    tried: dict[str, str] = {}
    for path in (DATA, extra) if extra else (DATA,):
        top = Entry(parse_toml(read_text(path), path.name), path.name, problems)
        for entry in top.rows("profile", "label"):
            told = entry.text("tried") or ""
            if row := _profile(entry, targets):
                rows[row.label], tried[row.label] = row, told
    if problems:
        raise PlanError(problems)
    return Profiles(rows, targets, tried)


def _profile(entry: Entry, targets: Targets) -> Profile | None:
    row = entry.record(Profile, backend=entry.choice("backend", BACKENDS) or "api")
    entry.close()
    _check(entry, row, targets)
    return row if row.label and row.target and row.runtime else None


def _check(entry: Entry, row: Profile, targets: Targets) -> None:
    check_label(entry, row.label)
    for name in row.file_options:
        if name not in row.options:
            entry.bad(f"file_options names {quote(name)}, which options lacks")
    if not row.target:
        return
    known = {target.label: target for target in targets.every}
    if row.target not in known:
        entry.bad(f"unknown target {quote(row.target)}", hint(row.target, known))
    elif known[row.target].provider in NEVER:
        provider = known[row.target].provider
        entry.bad(f"{provider} cannot compile ahead of time: {NEVER[provider]}")

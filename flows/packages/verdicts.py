"""What verification said of a package on each version of its provider, and what that comes to.

Providers, drivers and ONNX Runtime change every month, and a published package stays as it is.
Every verification on its own provider is kept, by its content and by the version of the provider
with its driver, so that the next one tells what is new.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from flows.packages.run_records import json_bytes
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import read_json, replace_file
from matrix.codec import from_json
from matrix.digest import value_digest

Json = Mapping[str, Any]
_MOST = 50
"""Verdicts that are kept for each version of a provider."""


class Trend(StrEnum):
    """What the verdicts of a package say, the worst first."""

    NEW = "fails now"
    FLAKY = "flaky"
    SUSTAINED = "still fails"
    RECOVERED = "recovered"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True, order=True)
class Verdict:
    """One verification of a package on its own provider."""

    at: float
    """Seconds since 1970."""
    provider: str
    version: str
    """Of what executes models, with the driver where the provider tells it."""
    failed: str = ""
    """The first rung that does not hold, and why; empty: all hold."""


@dataclass(frozen=True, slots=True)
class History:
    """The verdicts of a package in order, at least one."""

    verdicts: tuple[Verdict, ...]

    @property
    def trend(self) -> Trend:
        """What the last verdict is to those before it."""
        *earlier, last = self.verdicts
        place = (last.provider, last.version)
        same = [one for one in earlier if (one.provider, one.version) == place]
        if any(bool(one.failed) != bool(last.failed) for one in same):
            return Trend.FLAKY
        before = bool(earlier and earlier[-1].failed)
        if last.failed:
            return Trend.SUSTAINED if before else Trend.NEW
        return Trend.RECOVERED if before else Trend.HOLDS

    def __str__(self) -> str:
        """The trend with its reason, in a line."""
        *earlier, last = self.verdicts
        text = f"{self.trend} on {last.provider}: {last.version}"
        if earlier and earlier[-1].version != last.version:
            did = "failed" if earlier[-1].failed else "held"
            text += f" (before: {did} on {earlier[-1].version})"
        return f"{text}; {last.failed}" if last.failed else text


def keep_verdict(settings: Settings, tree: str, evidence: Json, built: Json) -> History | None:
    """Add a verification; None: it was not made on the package's own provider.

    `evidence`: as `Climbed.to_json` gives it; `built`: the record of the package's build, whose
    verdict is the first one.
    """
    now = _verdict(evidence, time.time())
    if now is None:
        return None
    if history_of(settings, tree) is None and (first := _verdict(built, 0.0)):
        _add(settings, tree, first, {name: built[name] for name in evidence if name in built})
    _add(settings, tree, now, evidence)
    return history_of(settings, tree)


def history_of(settings: Settings, tree: str) -> History | None:
    """What this machine keeps of a content; None: nothing."""
    folder = Workspace(settings).evidence_of(tree).with_suffix("")
    rows = [row for file in sorted(folder.glob("*.json")) for row in _verdicts(file)]
    return History(tuple(sorted(rows))) if rows else None


def failures_of(settings: Settings, trees: Iterable[str | None]) -> dict[str, str]:
    """By content, what verifying again came to where it has not always held."""
    known = {tree: history_of(settings, tree) for tree in trees if tree}
    return {
        tree: str(found)
        for tree, found in known.items()
        if found and found.trend is not Trend.HOLDS
    }


def _verdict(evidence: Json, at: float) -> Verdict | None:
    """Of a build record or of evidence; None: it was not run on its own provider."""
    own = [one for one in evidence.get("runtimes", ()) if one.get("own") and "version" in one]
    if not own:
        return None
    rungs = evidence.get("verification", ())
    failed = [one for one in rungs if one.get("passed") is False and not one.get("waived")]
    why = f"{failed[0]['name']}: {failed[0]['detail']}" if failed else ""
    name = own[0].get("name") or f"{own[0]['provider']} {own[0]['device']}"
    return Verdict(at, str(name), str(own[0]["version"]), why)


def _add(settings: Settings, tree: str, verdict: Verdict, evidence: Json) -> None:
    key = value_digest([verdict.provider, verdict.version])[:16]
    file = Workspace(settings).evidence_of(tree).with_suffix("") / f"{key}.json"
    kept = [*_verdicts(file), verdict][-_MOST:]
    file.parent.mkdir(parents=True, exist_ok=True)
    told = {"verdicts": [asdict(one) for one in kept], "evidence": dict(evidence)}
    replace_file(file, json_bytes(told))


def _verdicts(file: Path) -> Iterator[Verdict]:
    """What a file holds that can be read: evidence is made again by verifying again."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        yield from from_json(read_json(file)["verdicts"], list[Verdict])

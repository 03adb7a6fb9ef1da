"""Turns the end of a run of the tool into an error, by its exit code and its messages.

The tool logs one JSON object a line (Serilog's compact form), mostly.

Most codes are not documented, so the messages decide where a code says nothing. A run that may
have committed before it failed is `OutcomeUnknown`: then the feed is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from feed import errors
from feed.azure.child import End, Outcome
from feed.azure.options import WORK_VARIABLE
from feed.azure.wire import FeedAbsent, PackageAbsent, TokenRefused
from machine.disk import FULL_WORDS
from matrix.codec import parse_json

_PROGRESS = {
    "Uploading": ("UploadedBytes", "TotalBytes"),
    "Downloading": ("DownloadedBytes", "TotalBytes"),
    "ProcessingFiles": ("ProcessedFiles", "TotalFiles"),
}
_ERRORS = frozenset({"Error", "Fatal", "Critical"})
_TELLS_NOTHING = frozenset({"SourceContext", "UtcTimestamp"})
"""Fields that every line has; those that begin with @ are the format's own."""
_LONGEST = 300
BYTES = frozenset({"Uploading", "Downloading"})


@dataclass(frozen=True, slots=True)
class Event:
    """One line. A line that is not JSON (a crashing runtime, a native library) is text only."""

    text: str
    level: str = "Information"
    name: str = ""
    source: str = ""
    done: int = 0
    total: int = 0
    reason: str = ""
    """What the other fields of an error say: its exception, its properties."""

    @property
    def is_error(self) -> bool:
        """Warnings do not count: successful runs are full of them."""
        return self.level in _ERRORS


def read_event(line: str) -> Event:
    """Understand a line as far as it can be; never fails."""
    try:
        data = parse_json(line)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        return Event(line)
    identity = data.get("EventId")
    name = identity.get("Name") if isinstance(identity, dict) else None
    keys = _PROGRESS.get(name, ("", "")) if isinstance(name, str) else ("", "")
    return Event(
        text=str(data.get("@m", data.get("@mt", line))),
        level=str(data.get("@l", "Information")),
        name=str(name or ""),
        source=str(data.get("SourceContext", "")),
        done=_count(data.get(keys[0])),
        total=_count(data.get(keys[1])),
        reason=_reason(data) if str(data.get("@l")) in _ERRORS else "",
    )


def final_error(lines: tuple[str, ...]) -> str:
    """What the tool said last as an error; else its last words that are not JSON, or nothing."""
    events = [read_event(line) for line in lines if line.strip()]
    found = [event for event in events if event.is_error]
    own = [event for event in found if event.source.startswith("ArtifactTool.Program")]
    if own or found:
        return _told((own or found)[-1], found)
    plain = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("{")]
    return plain[-1] if plain else ""


def _told(last: Event, found: list[Event]) -> str:
    """An error with its reason; one that gives none is explained by the error before it."""
    before = found[: found.index(last)]
    reason = last.reason
    if not reason and before and "unexpected error" in last.text.lower():
        reason = ": ".join(filter(None, (before[-1].text, before[-1].reason)))
    return f"{last.text.rstrip('.')}: {reason}" if reason and reason not in last.text else last.text


def _reason(data: dict[str, Any]) -> str:
    """The exception without its stack, innermost cause included, and the text properties."""
    told = []
    if isinstance(exception := data.get("@x"), str):
        lines = [line.strip() for line in exception.splitlines()]
        told += [line.removeprefix("---> ") for line in lines[:1]]
        told += [line.removeprefix("---> ") for line in lines[1:] if line.startswith("---> ")][-1:]
    told += [
        value
        for name, value in data.items()
        if isinstance(value, str) and not name.startswith("@") and name not in _TELLS_NOTHING
    ]
    known = str(data.get("@m", ""))
    fresh = [" ".join(text.split())[:_LONGEST] for text in dict.fromkeys(told) if text.strip()]
    return "; ".join(text for text in fresh if text not in known)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


CRASH_HINT = (
    "ArtifactTool cannot start on this machine: install the libraries of .NET it names "
    "(libicu, libssl), or set DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 where only ICU is missing"
)
TOOL_HINT = "set MODELMILL_AZURE_TOOL to the folder that has it; unset, it is downloaded"
_ADDRESS_HINT = "check organization, project and feed in the address given with --feed"


@dataclass(frozen=True, slots=True)
class Run:
    """The run that has ended."""

    what: str
    """`publish NAME VERSION` or the like."""
    commits: bool
    """Whether it changes the feed: then a failure leaves the outcome open."""
    identity: str


def judge_run(run: Run, outcome: Outcome) -> errors.FeedError | None:
    """The error that a run ended with; None: it succeeded."""
    if outcome.end is not End.EXITED:
        return _unknown(run, f"was {outcome.end}")
    if outcome.code == 0:
        return None
    said = final_error(outcome.log)
    text = f"{run.what}: ArtifactTool ended with code {outcome.code}"
    text = f"{text}: {' '.join(said.split())[:400]}" if said else text
    return _by_words(run, text, said) or _by_code(run, text, outcome)


@dataclass(frozen=True, slots=True)
class _Words:
    """A pattern in the tool's messages and the error it stands for; the first match decides."""

    pattern: str
    kind: type[errors.FeedError]
    hint: str = ""

    def found_in(self, text: str) -> bool:
        return re.search(self.pattern, text, re.IGNORECASE) is not None


_CRASH = _Words(
    r"valid ICU package|libssl|libcrypto|GLIBC|cannot execute|error while loading shared|"
    r"No usable version of",
    errors.Unauthorized,
    CRASH_HINT,
)
_WORDS = (
    _Words(
        r"has been deleted, and cannot be republished",
        errors.Conflict,
        "a deleted version cannot be used again: sweep again with another --stamp",
    ),
    _Words(
        r"lacks permission|You need to have|\b403\b|Forbidden",
        errors.Unauthorized,
        "ask an owner of the feed to give {identity} the role {role}",
    ),
    _Words(r"TF400733|exceeding usage of resource", errors.Unavailable),
    _Words(r"TF400813|VS3006[34]|token.*expired|\b401\b|Unauthori[sz]ed", TokenRefused),
    _Words(r"\b(429|50[0234])\b|temporarily unavailable", errors.Unavailable),
    _Words(
        r"storage limit|billing",
        errors.Rejected,
        "delete versions that nobody needs, or set up billing for Artifacts in the organization's "
        "settings",
    ),
    _Words(
        r"maximum number of versions",
        errors.Rejected,
        "publish to other packages: sweep again with --package 'NAME-{{model}}'",
    ),
    _Words(
        FULL_WORDS,
        errors.NoSpace,
        f"free space where the packages are laid out, or set {WORK_VARIABLE} to a folder on "
        "another disk",
    ),
    _Words(r"feed with ID .* doesn't exist|project .* does not exist", FeedAbsent, _ADDRESS_HINT),
    _Words(r"Can't find the package |Did not find any versions of ", PackageAbsent),
    _Words(r"already (exists|contains|been published)", errors.VersionExists),
    _CRASH,
)
_CODES: dict[int, tuple[type[errors.FeedError], str]] = {
    17: (errors.VersionExists, ""),
    19: (FeedAbsent, _ADDRESS_HINT),
    20: (errors.Rejected, ""),
}
_BAD_NAME = _Words(r"\b(name|version)\b.*(invalid|not valid|too long|must )", errors.Rejected)


def _by_words(run: Run, text: str, said: str) -> errors.FeedError | None:
    rule = next((rule for rule in _WORDS if rule.found_in(said)), None)
    if rule is None:
        return None
    role = "Feed Publisher (Contributor)" if run.commits else "Feed Reader"
    return rule.kind(text, hint=rule.hint.format(identity=run.identity, role=role))


def _by_code(run: Run, text: str, outcome: Outcome) -> errors.FeedError:
    if outcome.code in _CODES:
        kind, hint = _CODES[outcome.code]
        return kind(text, hint=hint)
    if _BAD_NAME.found_in(text):
        return errors.Rejected(text)
    if any(_CRASH.found_in(line) for line in outcome.log):
        return errors.Unauthorized(text, hint=CRASH_HINT)
    return _unknown(run, f"failed: {text}")


def _unknown(run: Run, why: str) -> errors.FeedError:
    message = f"{run.what} {why}"
    return errors.OutcomeUnknown(message) if run.commits else errors.Unavailable(message)

"""The document of a report: everything it shows, as frozen dataclasses and as compact JSON.

A large sweep has thousands of cells, so what repeats (keys, policies, owners, logs) is listed once
and referred to by its place in that list. What is unknown is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

from flows.observe.opening import Opening, Sharing

SCHEMA = 1
Json = Mapping[str, Any]
T = TypeVar("T")


class Distinct(Generic[T]):
    """A list in which equal values (by a key that can be hashed) have one place."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._places: dict[object, int] = {}

    def of(self, value: T, key: object = None) -> int:
        """The place of a value; a new value is appended."""
        name = value if key is None else key
        place = self._places.setdefault(name, len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


@dataclass(frozen=True, slots=True)
class Heading:
    """Which sweep it is, when it ran and how it ended."""

    stamp: str
    feed: str
    state: str
    version: str
    """Of modelmill."""
    created_at: float
    begun_at: float
    ended_at: float | None
    seconds: float
    """Of all runs that ended."""
    runs: int
    exit_code: int | None
    verdict: str
    settings: Json
    generated_at: float


@dataclass(frozen=True, slots=True)
class Column:
    """A target, or a target with a precision of its own, or the exports."""

    label: str
    ep: str
    device: str


@dataclass(frozen=True, slots=True)
class Row:
    """A model."""

    name: str
    id: str
    task: str
    priority: str
    group: str
    type: str
    source: Json
    content: Mapping[str, str] = field(default_factory=dict)
    """Digest and commit of the source that was read; empty if nothing was built."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a cell; `saved`: the seconds that reuse saved."""

    stage: str
    component: str
    reused: bool
    seconds: float
    saved: float
    bytes: int
    memory: int
    key: int


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened to a cell: when, what, and who did it (a place in `owners`)."""

    at: float
    what: str
    owner: int | None = None
    why: str = ""
    """The reason of a failed attempt, even if a later one succeeded."""


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell or export: its place in the grid and the content of its panel."""

    row: int
    column: int
    id: str
    status: str
    precision: str
    package: str
    version: str
    tree: str | None = None
    bytes: int | None = None
    seconds: float | None = None
    attempts: int = 0
    ended_at: float | None = None
    failure: str | None = None
    stage: str | None = None
    exit_code: int | None = None
    message: str | None = None
    hint: str | None = None
    log: int | None = None
    """A place in `logs`."""
    retryable: bool | None = None
    policy: int | None = None
    """A place in `policies`."""
    rungs: Sequence[Json] = ()
    level: str | None = None
    """How far verification went."""
    opening: Opening | None = None
    """Of compiled cells."""
    benchmarks: Sequence[Json] = ()
    """Of its content, whichever sweep made them."""
    comparisons: Sequence[Json] = ()
    """Of its content with other content, in turns."""
    unmeasured: str | None = None
    """Why a benchmark that was asked for is not there."""
    sharing: Sharing | None = None
    """Of compiled cells whose graphs share a context."""
    traces: Sequence[Json] = ()
    """With the page of each, relative to the report."""
    detail: Json | None = None
    stages: Sequence[Stage] = ()
    steps: Sequence[Step] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of work of a slot; `lane` 0: building, 1: publishing during the next build."""

    cell: int
    what: str
    start: float
    end: float
    lane: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A slot over the whole sweep."""

    owner: int
    cells: int
    busy: float
    """Seconds in which it built or verified."""
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Timeline:
    """When anything happened (a sweep may be resumed days later), and the workers."""

    stretches: Sequence[tuple[float, float]]
    workers: Sequence[Worker]


@dataclass(frozen=True, slots=True)
class Document:
    """A report, before it is a page."""

    heading: Heading
    totals: Json
    """The numbers on top: cells, what was published, what reuse saved."""
    statuses: Sequence[Json]
    causes: Mapping[str, Json]
    columns: Sequence[Column]
    rows: Sequence[Row]
    cells: Sequence[CellView]
    policies: Sequence[Json]
    keys: Sequence[str]
    owners: Sequence[str]
    logs: Sequence[str]
    timeline: Timeline
    failures: Sequence[Json]
    """By cause; `cells` and `exports` in them are places in `cells`."""
    rates: Sequence[Json]
    """How many cells of a priority in a column passed; without one: of all of them."""
    slowest: Sequence[Json]
    largest: Sequence[Json]
    """Names with a value, largest first; `cell` is where a click leads."""
    comparison: Json | None = None
    """With another sweep, without unchanged cells."""
    schema: int = field(default=SCHEMA)

    def to_json(self) -> dict[str, Any]:
        """Without unknown values."""
        plain: dict[str, Any] = _plain(self)
        return plain


_KEPT = (0, 0.0, False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        named = ((item.name, getattr(value, item.name)) for item in fields(value))
        return {name: _plain(item) for name, item in named if item or item in _KEPT}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value

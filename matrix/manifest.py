"""What a package says of itself in `modelmill.json` and `build.json`, checked as it is read.

Whoever wrote a package may have written anything: every part that a reader uses has the expected
type, or the whole is refused. Packages of other versions lack parts and have more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict

from matrix.codec import from_json
from matrix.digest import FileEntry
from matrix.verification import Rung

Json = Mapping[str, Any]


class _Tree(TypedDict):
    tree: str | None


class _Model(TypedDict, total=False):
    id: str
    task: str
    model_type: str | None


class _Target(TypedDict, total=False):
    label: str
    provider: str
    device: str


class _Policy(TypedDict, total=False):
    precision: Required[str]
    static_shapes: Required[bool]
    blocked_ops: Required[list[str]]
    blocked_passes: Required[list[str]]
    notices: list[str]


class _Values(TypedDict):
    shape: list[int]


class _Sampled(TypedDict, total=False):
    kind: str
    origin: str
    parts: dict[str, int]


class _Facts(TypedDict, total=False):
    inputs: dict[str, dict[str, _Values]]
    samples: _Sampled | int
    """Of the stage `inputs` what they are, of `quantize` how many it has calibrated on."""
    graphs: dict[str, Any] | list[dict[str, Any]]


class _Params(TypedDict, total=False):
    blocked_passes: list[str]


class _Stage(TypedDict, total=False):
    stage: Required[str]
    component: str
    key: str
    tree: str
    params: _Params
    facts: _Facts


class _Engine(TypedDict):
    name: str
    tools: dict[str, str]


class _Member(TypedDict):
    name: str
    cell: str
    portable: _Tree
    export: _Tree


class _Accepted(TypedDict, total=False):
    reason: str


class _Samples(TypedDict, total=False):
    trained: bool
    accepted: _Accepted


class _Source(TypedDict, total=False):
    digest: str
    commit: str | None
    members: dict[str, Any]


class _Manifest(TypedDict, total=False):
    kind: str
    cell: str
    model: _Model
    target: _Target
    policy: _Policy
    notices: list[str]
    export: _Tree | None
    portable: _Tree
    profile: dict[str, Any] | None
    samples: _Samples
    members: list[_Member]
    source: _Source
    engine: _Engine
    stages: list[_Stage]
    components: list[str]
    files: list[FileEntry]


class _Runtime(TypedDict, total=False):
    name: str
    own: bool
    ran: bool
    taken: tuple[int, int]
    weights: tuple[int, int]
    why: str
    not_run: str


class _Rules(TypedDict, total=False):
    parity: dict[str, dict[str, Any]]
    waive: dict[str, str]
    task: dict[str, Any] | None


class _Seen(TypedDict, total=False):
    dtype: Required[str]
    shapes: Required[list[list[int]]]
    finite: bool


class _Ports(TypedDict):
    inputs: list[tuple[str, str, list[Any]]]
    outputs: list[tuple[str, str, list[Any]]]
    seen: dict[str, _Seen]


class _Reference(TypedDict, total=False):
    files: list[FileEntry]
    components: dict[str, _Ports]
    generated: dict[str, Any]


class _Run(TypedDict, total=False):
    stage: Required[str]
    component: str
    info: dict[str, Any]


class _Record(TypedDict, total=False):
    stamp: str
    version: str
    started: str
    attempt: int
    verification: list[Rung]
    runtimes: list[_Runtime]
    rules: _Rules
    reference: _Reference
    stages: list[_Run]
    left_out: dict[str, Any]
    sharing: dict[str, Any]


def checked_manifest(value: Any) -> Json:
    """A `modelmill.json`. Raises `ValueError` in plain words."""
    return _checked(value, _Manifest)


def checked_record(value: Any) -> Json:
    """A `build.json`. Raises `ValueError` in plain words."""
    return _checked(value, _Record)


def _checked(value: Any, kind: type[Any]) -> Json:
    from_json(value, kind, exact=False)
    found: Json = value
    return found

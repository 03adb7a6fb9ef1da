"""The contract of engines, between the build and the code that runs in the host.

Standard library only: foreign interpreters import this module too.

The host calls `tools`, `plan` and `run` of one engine object, one request at a time. `plan`
must be cheap (no torch): it is all that a sweep calls when the store has every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path, PurePath
from types import UnionType
from typing import Any, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

Json = Mapping[str, Any]

SOURCE = "source"
"""The name by which a stage asks for the model's source among its inputs."""


@dataclass(frozen=True)
class Request:
    """A model and the policy to build it with, as plain JSON (see `workers.build.request`)."""

    model: Json
    """id, task, model_type, source {kind, ref, revision, seed, config}, dataset,
    allow {remote_code, pickle}, and where they apply: source.file (a ready ONNX file inside the
    source), offline (take a Hub model from the local cache alone), recipes (a folder of them),
    new_head (weights of the head that the checkpoint lacks may be random)."""
    target: Json
    """label, ep, device, provider."""
    policy: Json
    """precision, opset, optimization, static_shapes, shapes, quantizer, blocked_passes, ..."""


@dataclass(frozen=True)
class StageSpec:
    """A stage of a cell before it runs. Only these fields and the inputs may change its outputs."""

    name: str
    """export, inputs, optimize, quantize, compile: also the failure class of what it raises."""
    params: Json
    """Effective parameters: two targets that resolve to equal ones share the run."""
    inputs: Sequence[str]
    """Names of earlier stages, or SOURCE."""
    tools: Sequence[str]
    """Which of the engine's tools go into the key."""
    per_component: bool = False
    """Run once for each component of the export, each with its own key.

    A component of the export is a folder `<component>/` with `model.onnx`, or a file
    `<component>.onnx` with its weights beside it. Such a run sees `model.onnx`, not
    `<component>/model.onnx`: of its inputs it gets that component's folder alone (all of an input
    that has no such folder), and what it writes is put under `<component>/`. Files of the export
    outside all components (config, tokenizer) are added to the package as they are. A single model
    (no components) has one run with everything."""


@dataclass(frozen=True)
class BuildPlan:
    """What `Engine.plan` answers."""

    source: Json
    """`digest` (what the source is, full SHA-256) and what the manifest says of it (revision,
    files, ...); nothing that depends on this machine."""
    stages: Sequence[StageSpec]
    """In order. The last one that is not `inputs` makes the files of the package; a stage named
    `export` makes the export package."""
    notices: Sequence[str] = ()
    memory: int = 0
    """Estimated peak bytes of the worst stage; 0: unknown."""
    disk: int = 0
    """Estimated bytes of all stages' outputs; 0: unknown."""


@dataclass(frozen=True)
class StageJob:
    """A stage to run now."""

    stage: str
    params: Json
    request: Request
    inputs: Mapping[str, Path]
    """One folder per name in the spec's `inputs`; read-only, possibly hard links: never write."""
    out: Path
    """An empty folder; every file below it when `run` returns is an output."""
    component: str = ""
    """The component folder name for a per-component stage; empty for a single model."""
    progress: Callable[[str], None] = field(default=lambda _text: None)


@dataclass(frozen=True)
class StageReport:
    """The report of a stage. `facts` must depend on the key alone; `info` need not."""

    facts: Json = field(default_factory=dict)
    """For the manifest: precision really applied, components (export: a list; empty for a
    single model), node counts, notices."""
    info: Json = field(default_factory=dict)
    """For the build record: timings inside the stage, warnings seen, machine facts."""


class StageError(Exception):
    """A stage failed for a known reason."""

    def __init__(
        self, message: str, hint: str = "", *, failure: str = "", retryable: bool = False
    ) -> None:
        super().__init__(message)
        self.failure = failure
        """A `matrix.status.FailureClass` value; empty: the stage's own (EXPORT, ...)."""
        self.hint = hint
        self.retryable = retryable


def version(distribution: str) -> str:
    """The installed version of a distribution; empty if there is none."""
    from importlib import metadata  # every help text reads tables that name distributions

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


class Engine(Protocol):
    """An engine, constructed without arguments in the host process."""

    name: str

    def tools(self) -> Mapping[str, str]:
        """Versions of every tool that can change a byte of any output; no heavy import."""

    def plan(self, request: Request) -> BuildPlan:
        """Resolve the source and lay out the stages of a cell. Raises `StageError`."""

    def run(self, job: StageJob) -> StageReport:
        """Run one stage. Raises `StageError`, or anything (then it is a failure of its stage)."""


T = TypeVar("T")


def to_json(value: Any) -> Any:
    """As it crosses the pipe; functions stay on their side."""
    if is_dataclass(value):
        values = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: to_json(item) for name, item in values.items() if not callable(item)}
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def from_json(value: Mapping[str, Any], kind: type[T]) -> T:
    """The dataclass on the other side."""
    types = get_type_hints(kind)
    return kind(**{name: _typed(item, types[name]) for name, item in value.items()})


def _typed(value: Any, kind: Any) -> Any:
    if isinstance(kind, UnionType):  # `KIND | None`
        (kind,) = (one for one in get_args(kind) if one is not type(None))
        return None if value is None else _typed(value, kind)
    if is_dataclass(kind):
        return from_json(value, cast("type[Any]", kind))
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return kind(value)
    if get_origin(kind) is Sequence:
        return tuple(_typed(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is Mapping:
        return {name: _typed(item, get_args(kind)[1]) for name, item in value.items()}
    return value

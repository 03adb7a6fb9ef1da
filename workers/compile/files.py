"""Compiling plain ONNX files into a folder: no catalog, feed or state is needed.

A compiled model is checked: it opens on its provider and answers as the portable model does. Both
run on samples that the package is judged on, or on seeded values if there is no package.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine.files import hash_file, move, temporary_folder
from matrix.digest import SAMPLES, is_reference, value_digest
from matrix.errors import UsageError
from matrix.model import Profile
from matrix.status import FailureClass
from matrix.verification import Limit
from workers.compile.devices import parameters
from workers.compile.group import (
    Context,
    Graph,
    Group,
    Job,
    compile_group,
    leaving_out,
    output_stems,
    references,
)
from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.numerics.compare import fault
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import SHARED, VIRTUAL, Runtime

SAME = Limit(snr=37.0)
"""Compiling changes numbers only through the order of operations."""
SETS = 3


@dataclass(frozen=True, slots=True)
class Opening:
    """What opening a model took."""

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. `passed` is None where it could not be run."""

    passed: bool | None
    detail: str
    portable: Opening | None = None
    compiled: Opening | None = None
    inputs: Sequence[Any] = ()
    """As the compiled model declares them: name, type and shape of each."""
    outputs: Sequence[Any] = ()


def check_compiled(
    runtimes: Runtimes,
    runtime: Runtime,
    portable: Path,
    compiled: Path,
    scratch: Path,
    watching: Watching,
    *,
    shared: bool,
) -> Checked:
    """Open and run the portable model, then the compiled one, on the provider that compiled."""
    if runtime.virtual:
        return Checked(None, VIRTUAL)
    if shared and not runtime.shared_contexts:
        return Checked(None, SHARED)
    reference = scratch / "reference.npz"
    samples = samples_of(portable)
    told = runtimes.measure(runtime, _request(portable, samples, save=reference), watching)
    if told.get("error"):
        return Checked(None, f"the portable model does not run: {told['error']}")
    found = runtimes.measure(runtime, _request(compiled, samples, reference=reference), watching)
    problem = found.get("error") or next(_differences(told, found), "")
    return Checked(
        passed=not problem,
        detail=str(problem or f"answers as the portable model does on {runtime.name}"),
        portable=_opening(told),
        compiled=_opening(found),
        inputs=found.get("inputs", ()),
        outputs=found.get("outputs", ()),
    )


def samples_of(model: Path) -> list[str]:
    """Judged samples of the package that a model is in; none: it is in no package."""
    beside = model.parent
    for folder in (
        beside / SAMPLES / model.stem,
        beside / SAMPLES,
        beside.parent / SAMPLES / beside.name,
    ):
        names = [one for one in folder.glob("*.npz") if not is_reference(f"{SAMPLES}/{one.name}")]
        if names:
            return [str(one.absolute()) for one in sorted(names)[:SETS]]
    return []


def _request(file: Path, samples: Sequence[str], **more: Path) -> dict[str, Any]:
    files = {key: str(one) for key, one in more.items()}
    given = {"samples": list(samples)} if samples else {"sets": SETS}
    return {"file": str(file.absolute()), "limit": asdict(SAME), **given, **files}


def _opening(told: Mapping[str, Any]) -> Opening | None:
    if "open_seconds" not in told:
        return None
    return Opening(float(told["open_seconds"]), int(told["open_memory"]))


def _differences(told: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for side in ("inputs", "outputs"):
        if told[side] != found[side]:
            yield f"its {side} are not those of the portable model"
    for name, one in found["parity"].items():
        if text := one.get("absent") or fault(one, SAME, "the portable model"):
            yield f"output {name}: {text}"


FINAL = "_ctx.onnx"
"""The end of a context model's name."""


@dataclass(slots=True)
class Compiled:
    """The result of compiling one file."""

    source: Path
    output: Path | None = None
    binaries: tuple[Path, ...] = ()
    """Files that the context model refers to; several models may share one."""
    seconds: float = 0.0
    error: str = ""
    checked: Checked | None = None
    sharing: Mapping[str, int] | None = None
    """Of models in one context: the number of `graphs`, and their bytes `together`."""


@dataclass(slots=True)
class FileCompiler:
    """Compiles files for one profile."""

    runtimes: Runtimes
    scratch: Path
    """A private folder."""
    profile: Profile
    runtime: Runtime
    dest: Path
    share: bool = False
    check: bool = True
    overwrite: bool = False
    watching: Watching = UNWATCHED

    def run(self, paths: Sequence[Path]) -> list[Compiled]:
        """Compile all files and what is in folders, in order; a file that cannot be used costs no
        other. Raises `UsageError` before anything is made, also if no file can be used."""
        found: dict[Path, tuple[Path, str]] = {}
        for given in paths:
            for path, stem in _models(given):
                found.setdefault(path.resolve(), (path, stem))
        stems = output_stems([stem for _path, stem in found.values()])
        graphs, refused = [], dict[Path, UsageError]()
        for (path, _stem), stem in zip(found.values(), stems, strict=True):
            try:
                graphs.append(Graph(stem, str(path), path, self._weights(path)))
            except UsageError as error:
                refused[path] = error
        if not graphs:
            raise next(iter(refused.values()))
        self._guard(graphs)
        groups = [graphs] if self.share else [[one] for one in graphs]
        made = {one.source: one for group in groups for one in self._group(group)}
        made |= {path: Compiled(path, error=str(error)) for path, error in refused.items()}
        return [made[path] for path, _stem in found.values()]

    def _weights(self, path: Path) -> Sequence[str]:
        """The files with the weights of a model. Raises `UsageError` for one that is compiled
        already or no model."""
        try:
            told = references(self.runtimes, path.parent, [path.name])[path.name]
        except BuildFailed as error:
            raise UsageError(f"{path} cannot be read as an ONNX model: {error.reason}") from None
        if told["nodes"]:
            raise UsageError(
                f"{path} is compiled already", hint="give the portable model that it was made from"
            )
        return list(told["external"])

    def _guard(self, graphs: Sequence[Graph]) -> None:
        dest = self.dest
        if dest.exists() and not dest.is_dir():
            raise UsageError(f"{dest} is a file", hint="name a folder with -o")
        there = [one.name + FINAL for one in graphs if (dest / (one.name + FINAL)).exists()]
        if there and not self.overwrite:
            raise UsageError(
                f"{dest} has {', '.join(there[:3])} already", hint="add --overwrite, or choose -o"
            )

    def _group(self, graphs: Sequence[Graph]) -> list[Compiled]:
        with temporary_folder("compile-", self.scratch) as folder:
            job = Job(self.runtimes, self.runtime, self.profile, folder, self.watching)

            def attempt(left: Mapping[str, Graph]) -> Group:
                members = list(left.values())
                return compile_group(members, self._key(members), job)

            group, failures = leaving_out({one.member: one for one in graphs}, attempt)
            self.dest.mkdir(parents=True, exist_ok=True)
            made = [self._outcome(one, group) for one in group.contexts] if group else []
            if group:
                self._place(group, made)
        return [*made, *(self._failed(Path(one), error) for one, error in failures.items())]

    def _failed(self, source: Path, error: BuildFailed) -> Compiled:
        if error.failure is FailureClass.UNSUPPORTED:
            provider = self.runtime.provider
            return Compiled(source, error=f"{provider} takes no operator of it: nothing is written")
        return Compiled(source, error=error.reason)

    def _outcome(self, context: Context, group: Group) -> Compiled:
        graph, shared = context.graph, len(group.contexts) > 1
        compiled = Compiled(graph.model, seconds=context.seconds)
        compiled.sharing = group.sharing if shared else None
        if self.check:
            self.watching.progress(f"checking {graph.model}")
            compiled.checked = check_compiled(
                self.runtimes, self.runtime, graph.model, context.file, self.scratch,
                self.watching, shared=shared,
            )  # fmt: skip
            if compiled.checked.passed is False:
                compiled.error = f"the compiled model fails its check: {compiled.checked.detail}"
                return compiled
        compiled.output = self.dest / (graph.name + FINAL)
        compiled.binaries = tuple(self.dest / name for name in context.binaries)
        return compiled

    def _place(self, group: Group, made: Sequence[Compiled]) -> None:
        """Binaries first: a context model that is there has all that it names.

        No lock: binaries of another content have other names, and each name is replaced at once.
        """
        for binary in dict.fromkeys(path for one in made for path in one.binaries):
            _publish(group.folder / binary.name, binary)
        for context, one in zip(group.contexts, made, strict=True):
            if one.output is not None:
                _publish(context.file, one.output)

    def _key(self, graphs: Sequence[Graph]) -> str:
        made_of = parameters(self.runtime, self.profile)
        digests = [
            value_digest([hash_file(one.model.parent / name)[0] for name in one.files])
            for one in graphs
        ]
        return value_digest({**made_of, "sources": digests})


def _models(given: Path) -> Iterator[tuple[Path, str]]:
    """A file, or all models below a folder: `encoder/model.onnx` is called `encoder_model`."""
    if given.is_file():
        yield given, given.stem
        return
    found = sorted(given.rglob("*.onnx")) if given.is_dir() else []
    if not found:
        what = "has no .onnx file" if given.is_dir() else "is not a file"
        raise UsageError(f"{given} {what}", hint="give .onnx files or a folder of them")
    for path in found:
        yield path, "_".join(path.relative_to(given).with_suffix("").parts)


def _publish(made: Path, final: Path) -> None:
    """Whole under its name or not there; the folder may lie on another disk."""
    arriving = final.with_name(f".{final.name}.{os.getpid()}")
    shutil.copyfile(made, arriving)
    move(arriving, final)

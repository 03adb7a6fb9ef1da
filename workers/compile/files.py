"""Compiling plain ONNX files into a folder: no catalog, feed or state is needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from machine.files import hash_file
from matrix.digest import value_digest
from matrix.errors import UsageError
from matrix.model import Profile
from workers.compile.check import Checked, check_compiled
from workers.compile.devices import parameters
from workers.compile.group import (
    GroupResult,
    Job,
    Member,
    compare_sizes,
    compile_group,
    references,
)
from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

FINAL = "_ctx.onnx"
"""The end of a context model's name."""
_TOKEN = 16


@dataclass(slots=True)
class Compiled:
    """The result of compiling one file."""

    source: Path
    output: Path | None = None
    binaries: tuple[Path, ...] = ()
    """Files that the context model refers to; several models may share one."""
    seconds: float = 0.0
    error: str = ""
    warning: str = ""
    checked: Checked | None = None
    sharing: Mapping[str, int | None] | None = None
    """Of models in one context: bytes `together`, and `apart` with a context for each."""


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
        members, refused = [], dict[Path, UsageError]()
        for (path, _stem), stem in zip(found.values(), stems, strict=True):
            try:
                members.append(Member(str(path), path, stem + FINAL, self._weights(path)))
            except UsageError as error:
                refused[path] = error
        if not members:
            raise next(iter(refused.values()))
        self._guard(members)
        groups = [members] if self.share else [[one] for one in members]
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

    def _guard(self, members: Sequence[Member]) -> None:
        dest = self.dest
        if dest.exists() and not dest.is_dir():
            raise UsageError(f"{dest} is a file", hint="name a folder with -o")
        there = [one.output for one in members if (dest / one.output).exists()]
        if there and not self.overwrite:
            raise UsageError(
                f"{dest} has {', '.join(there[:3])} already", hint="add --overwrite, or choose -o"
            )

    def _group(self, wanted: Sequence[Member]) -> list[Compiled]:
        named = f"_{self._token(wanted)}.onnx"
        members = [replace(one, output=one.output.removesuffix(FINAL) + named) for one in wanted]
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        job = Job(self.runtime, self.profile, folder, self.watching)
        result = compile_group(self.runtimes, members, job)
        shared = [one for one in members if result.contexts.get(one.name, {}).get("nodes")]
        sharing = None
        if len(shared) > 1:
            self.watching.progress("compiling each model alone, to compare the sizes")
            sharing = compare_sizes(self.runtimes, shared, result, job)
        found = []
        for final, member in zip(wanted, members, strict=True):
            outcome = self._outcome(member, final.output, result)
            outcome.sharing = sharing if member in shared else None
            found.append(outcome)
        self._place(found, members, result)
        shutil.rmtree(folder, ignore_errors=True)
        return found

    def _outcome(self, member: Member, final: str, result: GroupResult) -> Compiled:
        compiled = Compiled(member.model, seconds=result.seconds.get(member.name, 0.0))
        if error := result.failures.get(member.name):
            compiled.error = error.reason
        elif not result.contexts[member.name]["nodes"]:
            provider = self.runtime.provider
            compiled.warning = f"no EPContext: {provider} takes no operator of it"
        else:
            dest = self.dest
            compiled.output = dest / final
            names = result.contexts[member.name]["binaries"]
            compiled.binaries = tuple(dest / name for name in names)
            if self.check:
                self.watching.progress(f"checking {member.name}")
                compiled.checked = check_compiled(
                    self.runtimes, self.runtime, member.model,
                    result.folder / member.output, self.scratch, self.watching,
                    shared=len(result.seconds) > 1,
                )  # fmt: skip
                if compiled.checked.passed is False:
                    compiled.error = (
                        f"the compiled model fails its check: {compiled.checked.detail}"
                    )
                    compiled.output, compiled.binaries = None, ()
        return compiled

    def _place(
        self, found: Sequence[Compiled], members: Sequence[Member], result: GroupResult
    ) -> None:
        """Binaries first: a context model that is there has all that it names.

        No lock: binaries of another content have other names, and each name is replaced at once.
        """
        dest = self.dest
        dest.mkdir(parents=True, exist_ok=True)
        for binary in dict.fromkeys(path for one in found for path in one.binaries):
            _publish(result.folder / binary.name, binary)
        for one, member in zip(found, members, strict=True):
            if one.output is not None:
                _publish(result.folder / member.output, one.output)

    def _token(self, members: Sequence[Member]) -> str:
        made_of = parameters(self.runtime, self.profile)
        digests = [
            value_digest([hash_file(one.model.parent / name)[0] for name in one.files])
            for one in members
        ]
        return value_digest({**made_of, "sources": digests})[:_TOKEN]


def output_stems(stems: Sequence[str]) -> list[str]:
    """A stem for each model, `model` or `model_1`; the first to ask for a name gets it.

    They differ on every disk, upper and lower case alike. A name that a model has by itself is not
    given to another one: of model, model and model_1 the second becomes model_2.
    """
    own = {stem.casefold() for stem in stems}
    taken: set[str] = set()
    found = []
    for stem in stems:
        name, number = stem, 0
        while name.casefold() in taken or (number and name.casefold() in own):
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.casefold())
        found.append(name)
    return found


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
    if not made.exists():
        return
    arriving = final.with_name(f".{final.name}.{os.getpid()}")
    shutil.copyfile(made, arriving)
    arriving.replace(final)

"""What is measured: the graphs of a model, their input values, and the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file
from matrix.digest import FileEntry, files_digest
from workers.runtimes.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Graph:
    """A model file with its input values."""

    component: str
    """Empty: the model has no other graph."""
    file: Path
    inputs: tuple[Path, ...] = ()
    """Files of samples (`workers.samples`); none: synthetic ones in `shapes`."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of inputs; open dimensions of an input that is not named here get usual sizes."""

    @property
    def arguments(self) -> dict[str, Any]:
        """As the operations of a runtime's host take it."""
        return {
            "file": str(self.file.absolute()),
            "component": self.component,
            "inputs": [str(path.absolute()) for path in self.inputs],
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }


@dataclass(frozen=True, slots=True)
class Artifact:
    """The name and origin of a subject; part of every result."""

    name: str
    """A cell, or the path of a model file as it was given."""
    tree: str
    """The tree digest of the package; of a model file, the digest of it and its external data."""
    cell: str = ""
    target: str = ""
    profile: str = ""
    package: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """An artifact on a runtime, ready to be measured."""

    artifact: Artifact
    graphs: tuple[Graph, ...]
    runtime: Runtime

    @property
    def name(self) -> str:
        """As messages show it."""
        return f"{self.artifact.name} on {self.runtime.name}"


def file_artifact(
    file: Path, beside: Sequence[str], name: str, target: str = "", profile: str = ""
) -> Artifact:
    """A model file outside of any package; `beside`: its external data and context binaries."""
    entries = []
    for one in (file.name, *beside):
        digest, size = hash_file(file.parent / one)
        entries.append(FileEntry(one, size, digest))
    return Artifact(name, files_digest(entries), target=target, profile=profile)

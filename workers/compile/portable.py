"""The files of portable packages, as they are compiled and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix.status import FailureClass
from workers.compile.group import STAGE
from workers.errors import BuildFailed
from workers.runtimes.pool import Runtimes


def files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def model_in(folder: Path) -> Path:
    """The only model below a folder."""
    found = [path for path in files_in(folder) if path.suffix == ".onnx"]
    if len(found) != 1:
        text = f"there are {len(found)} models to compile instead of one"
        raise BuildFailed(FailureClass.UNKNOWN, STAGE, text, hint="a fault of the engine")
    return found[0]


def external_files(runtimes: Runtimes, model: Path) -> set[Path]:
    """The files that hold the weights of a portable model: the compiled one has its own."""
    args = {"folder": str(model.parent.absolute()), "models": [model.name]}
    reply = runtimes.checker.call("contexts", args, stage=STAGE)
    return {model.parent / name for told in reply.result.values() for name in told["external"]}


def placer(folder: Path) -> Callable[[Path], str]:
    """Copies everything below a folder into another; tells where the model is there."""

    def place(dest: Path) -> str:
        for path in files_in(folder):
            copy_file(path, dest / path.relative_to(folder))
        return model_in(folder).relative_to(folder).as_posix()

    return place


def copy_file(source: Path, dest: Path) -> None:
    """Copy a file into a folder that need not be there."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, dest)

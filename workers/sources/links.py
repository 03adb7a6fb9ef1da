"""What the folder of a model may hold: files and folders of its own.

A link makes a file of this machine look like one of the model's. Whoever made the folder chose it,
and what it leads to would be published. Links are followed nowhere but inside the Hub's own cache,
where every file of a model is a link to one of the Hub's own blobs. The folder itself may be a
link: its path is what the user typed. A pipe or a device has no end, and may never answer.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from machine.files import is_link
from workers.sources.errors import export_error

_HINT = "put the file itself there: links of a model's folder are not followed"


def own_file(folder: Path, name: str) -> Path:
    """The file of a folder under a relative name. Raises `StageError` if that is a link, below one,
    or no file."""
    path = folder
    for part in PurePosixPath(name).parts:
        path /= part
        if is_link(path) and not _is_blob(path):
            raise export_error(f"{name} in the model's folder is a link", _HINT)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise export_error(f"{name} in the model's folder is not a file", "remove it")
    return path


def refuse_foreign(folder: Path) -> None:
    """Raise `StageError` for the first link, pipe or device anywhere below a folder."""
    for path in sorted(folder.rglob("*")):
        if is_link(path) or not (path.is_file() or path.is_dir()):
            own_file(folder, path.relative_to(folder).as_posix())


def _is_blob(path: Path) -> bool:
    """Whether a link in the Hub's cache leads to a blob of the same model."""
    from huggingface_hub.constants import HF_HUB_CACHE

    target = path.resolve()
    blobs = target.parent
    return (
        blobs.name == "blobs"
        and blobs.parent.parent == Path(HF_HUB_CACHE).resolve()
        and path.parent.resolve().is_relative_to(blobs.parent / "snapshots")
    )


def leads_out(path: str) -> bool:
    """Whether a relative path leaves its folder, on any system."""
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    return bool(
        posix.is_absolute() or windows.is_absolute() or windows.drive or ".." in windows.parts
    )

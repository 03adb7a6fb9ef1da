"""Links in the folder of a model: they make a file of this machine look like one of the model's.

Whoever made the folder chose them, and what they lead to would be published. They are followed
nowhere but inside the Hub's own cache, where every file of a model is a link to one of the Hub's
own blobs. The folder itself may be a link: its path is what the user typed.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from machine.files import is_link
from workers.sources.errors import export_error

_HINT = "put the file itself there: links of a model's folder are not followed"


def own_file(folder: Path, name: str) -> Path:
    """The file of a folder under a relative name. Raises `StageError` if that is a link, or below
    one."""
    path = folder
    for part in PurePosixPath(name).parts:
        path /= part
        if is_link(path) and not _is_blob(path):
            raise export_error(f"{name} in the model's folder is a link", _HINT)
    return path


def refuse_links(folder: Path) -> None:
    """Raise `StageError` for the first link anywhere below a folder."""
    for path in sorted(folder.rglob("*")):
        if is_link(path):
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

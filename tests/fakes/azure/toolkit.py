"""The stand-in of ArtifactTool as a program: a folder to point at, or zips to download."""

from __future__ import annotations

import io
import stat
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.azure.model import Problem

SOURCE = Path(__file__).with_name("tool.py")


def program() -> bytes:
    """A script that this interpreter runs; isolated and without `site`, so it starts fast."""
    return f"#!{sys.executable} -IS\n".encode() + SOURCE.read_bytes()


def install(folder: Path) -> Path:
    """A folder that holds the tool."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "artifacttool"
    tool.write_bytes(program())
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return folder


class Releases:
    """What the client tools API offers."""

    def __init__(self) -> None:
        self.archives = {"0.2.488": archive(program())}
        self.newest = "0.2.488"

    def lookup(self, query: Mapping[str, str]) -> str:
        """The version for a platform, or the pinned one."""
        version = query.get("version") or self.newest
        if query.get("arch") != "x86_64" or version not in self.archives:
            raise Problem(
                404,
                "ReleaseNotFoundException",
                "No release could be found based on the provided criteria.",
            )
        return version


def archive(tool: bytes, extra: Mapping[str, bytes] | None = None) -> bytes:
    """A zip without modes, as the real one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as contents:
        contents.writestr("artifacttool", tool)
        for name, content in {"libs/native.so": b"native", **(extra or {})}.items():
            contents.writestr(name, content)
    return buffer.getvalue()

"""The archive that ArtifactTool comes in: fetched without credentials, unpacked with care."""

from __future__ import annotations

import stat
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from feed.azure.address import is_safe
from feed.errors import Corrupt, Rejected, Unavailable

EXECUTABLE = "artifacttool.exe" if sys.platform == "win32" else "artifacttool"
_BLOCK = 1 << 20
_LARGEST = 2 << 30


def download(uri: str, target: Path, timeout: tuple[float, float]) -> None:
    """Fetch a signed address into a file. It carries its own proof: no token goes with it."""
    import requests

    host = urlsplit(uri).hostname
    if not is_safe(uri):
        raise Rejected(f"the address of ArtifactTool at {host} is not https")
    with requests.Session() as session:
        # An `auth` that adds nothing also keeps `.netrc` from adding something.
        session.auth = lambda request: request
        try:
            with closing(
                session.get(uri, timeout=timeout, stream=True, allow_redirects=False)
            ) as reply:
                if reply.status_code != 200:
                    raise Unavailable(
                        f"ArtifactTool cannot be fetched from {host}: status {reply.status_code}"
                    )
                _save(reply.iter_content(_BLOCK), target)
        except requests.RequestException as error:
            # The text of the error would show the signed address.
            raise Unavailable(
                f"ArtifactTool cannot be fetched from {host}: {type(error).__name__}",
                hint="behind a proxy set HTTPS_PROXY, or set MODELMILL_AZURE_TOOL to a folder that "
                "has the tool",
            ) from None


def unpack(archive: Path, folder: Path) -> None:
    """Unpack into a new folder; every byte is checked by the archive's own checksums."""
    try:
        with zipfile.ZipFile(archive) as contents:
            members = contents.infolist()
            if sum(member.file_size for member in members) > _LARGEST:
                raise Corrupt("the archive of ArtifactTool is larger than 2 GiB")
            for member in members:
                if not _stays_inside(member.filename):
                    raise Corrupt(f"the archive of ArtifactTool holds {member.filename!r}")
            contents.extractall(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Unavailable(f"the archive of ArtifactTool is damaged: {error}") from error
    executable = folder / EXECUTABLE
    if not executable.is_file():
        raise Corrupt(f"the archive of ArtifactTool holds no {EXECUTABLE}")
    # Zip files of this tool carry no mode.
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _stays_inside(name: str) -> bool:
    parts = name.replace("\\", "/").rstrip("/").split("/")
    return not any(part in {"", ".", ".."} or ":" in part for part in parts)


def _save(blocks: Iterator[bytes], target: Path) -> None:
    size = 0
    with target.open("wb") as file:
        for block in blocks:
            size += len(block)
            if size > _LARGEST:
                raise Corrupt("the archive of ArtifactTool is larger than 2 GiB")
            file.write(block)

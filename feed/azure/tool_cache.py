"""Finds ArtifactTool: in a folder that the user names, or in our cache, which it fills once.

    <cache>/tools/<platform>-<version>/         one version, complete: it got its name at the end
    <cache>/tools/lock

Versions are only added: a process may run any of them.
"""

from __future__ import annotations

import platform
import re
import stat
import sys
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from feed.azure import sdk
from feed.azure.address import is_safe
from feed.azure.failures import TOOL_HINT
from feed.azure.options import CACHE_VARIABLE, Options
from feed.azure.service import Service
from feed.azure.staging import own_folder
from feed.errors import Corrupt, FeedError, Rejected, Unauthorized, Unavailable
from machine.files import move
from machine.locks import locked
from machine.scratch import claimed_folder
from machine.waits import WaitedTooLong, WaitRules
from matrix.paths import path_problem

EXECUTABLE = "artifacttool.exe" if sys.platform == "win32" else "artifacttool"
_BLOCK = 1 << 20
_LARGEST = 2 << 30


def download(uri: str, target: Path, timeout: tuple[float, float]) -> None:
    """Fetch a signed address into a file. It carries its own proof: no token goes with it."""
    import requests

    host = urlsplit(uri).hostname
    if not is_safe(uri):
        raise Rejected(f"the address of ArtifactTool at {host} is not https")
    failed = f"ArtifactTool cannot be fetched from {host}"
    with requests.Session() as session:
        # An `auth` that adds nothing also keeps `.netrc` from adding something.
        session.auth = lambda request: request
        try:
            with session.get(uri, timeout=timeout, stream=True, allow_redirects=False) as reply:
                if reply.status_code != 200:
                    raise Unavailable(f"{failed}: status {reply.status_code}")
                _save(reply.iter_content(_BLOCK), target)
        except requests.RequestException as error:
            # The text of the error would show the signed address.
            raise Unavailable(
                f"{failed}: {type(error).__name__}",
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
                if path_problem(member.filename.rstrip("/")):
                    raise Corrupt(f"the archive of ArtifactTool holds {member.filename!r}")
            contents.extractall(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Unavailable(f"the archive of ArtifactTool is damaged: {error}") from error
    executable = folder / EXECUTABLE
    if not executable.is_file():
        raise Corrupt(f"the archive of ArtifactTool holds no {EXECUTABLE}")
    # Zip files of this tool carry no mode.
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _save(blocks: Iterator[bytes], target: Path) -> None:
    size = 0
    with target.open("wb") as file:
        for block in blocks:
            size += len(block)
            if size > _LARGEST:
                raise Corrupt("the archive of ArtifactTool is larger than 2 GiB")
            file.write(block)


LOCK_WAIT = 900.0
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}")


@dataclass(frozen=True, slots=True)
class Release:
    """A version the service offers; the address is signed and must not be shown."""

    version: str
    uri: str

    def __repr__(self) -> str:
        return f"Release({self.version})"


class ToolCache:
    """Finds the executable, at most once for a process."""

    def __init__(self, service: Service, options: Options) -> None:
        self._service = service
        self._options = options
        self._query = release_query()
        self._label = f"{self._query['osName']}-{self._query['arch']}".lower()
        self._root = options.cache / "tools"
        self._finding = threading.Lock()
        self._found: Path | None = None

    def executable(self) -> Path:
        """The tool, ready to run."""
        with self._finding:
            if self._found is None:
                folder = self._options.tool_folder
                if folder:
                    self._found = _given(folder)
                else:
                    with own_folder(self._options.cache, CACHE_VARIABLE):
                        self._found = self._cached()
            return self._found

    def _cached(self) -> Path:
        self._root.mkdir(parents=True, exist_ok=True)
        pinned = self._options.tool_version
        try:
            with locked(self._root / "lock", WaitRules(LOCK_WAIT), longest_sleep=0.5):
                if pinned and self._folder(pinned).exists():
                    return self._folder(pinned) / EXECUTABLE
                return self._fetch(pinned)
        except WaitedTooLong as error:
            raise Unavailable(
                f"another process holds {self._root / 'lock'}",
                hint="see which modelmill is still running; it may be downloading the tool",
            ) from error

    def _fetch(self, pinned: str | None) -> Path:
        """Under the lock: look the release up, and fetch it if it is new."""
        release = self._release(pinned)
        if not self._folder(release.version).exists():
            self._install(release)
        return self._folder(release.version) / EXECUTABLE

    def _install(self, release: Release) -> None:
        with claimed_folder(self._root, "new-") as new:
            archive, content = new / "tool.zip", new / "content"
            timeout = (self._options.connect_timeout, self._options.read_timeout)
            self._service.patiently(lambda: download(release.uri, archive, timeout))
            unpack(archive, content)
            move(content, self._folder(release.version))

    def _release(self, pinned: str | None) -> Release:
        query = self._query | ({"version": pinned} if pinned else {})

        def lookup(clients: sdk.Clients) -> Any:
            return clients.tools._send(
                "GET",
                sdk.TOOLS_LOCATION,
                "5.0-preview",
                route_values={"toolName": "ArtifactTool"},
                query_parameters=query,
            ).json()

        try:
            answer = self._service.read(lookup)
            release = Release(str(answer["version"]), str(answer["uri"]))
        except (Unavailable, Rejected) as error:
            raise self._no_release(error) from error
        if not _VERSION.fullmatch(release.version) or pinned not in {None, release.version}:
            wanted = f" instead of {pinned}" if pinned else ""
            raise Rejected(f"the service offers ArtifactTool {release.version!r}{wanted}")
        return release

    def _no_release(self, error: FeedError) -> FeedError:
        if "No release could be found" not in error.message:
            return error
        return Unauthorized(
            f"there is no ArtifactTool for {self._label}: {error.message}",
            hint="publish from x86-64 Linux, Windows or macOS, or set MODELMILL_AZURE_TOOL to a "
            "folder that has the tool",
        )

    def _folder(self, version: str) -> Path:
        if not _VERSION.fullmatch(version):
            raise Rejected(f"{version!r} is not a version of ArtifactTool")
        return self._root / f"{self._label}-{version}"


def release_query() -> dict[str, str]:
    """What the lookup of a release asks for: this machine, in the service's words."""
    system, machine = platform.system(), platform.machine()
    # Builds exist for x86-64 only; macOS and Windows run them on ARM, Linux does not.
    known = machine.lower()
    if known in {"amd64", "x86_64"} or (known in {"arm64", "aarch64"} and system != "Linux"):
        machine = "x86_64"
    query = {"osName": system, "arch": machine}
    if system == "Linux":
        with suppress(OSError):
            release = platform.freedesktop_os_release()
            query["distroName"] = release.get("ID", "")
            query["distroVersion"] = release.get("VERSION_ID", "")
    return {name: value for name, value in query.items() if value}


def _given(folder: Path) -> Path:
    executable = folder / EXECUTABLE
    if not executable.is_file():
        raise Rejected(f"there is no {EXECUTABLE} in {folder}", hint=TOOL_HINT)
    return executable

"""Wine from Debian's packages, unpacked below a folder of ours: no root, nothing installed.

Its programs name the C library of the release that they were built for, so they are told to take
the one that is unpacked beside them; a Debian or Ubuntu of any age can run them.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RELEASE = "trixie"
"""Wine 10: that of older releases lacks functions that our libraries call."""
PACKAGES = ["libwine", "wine64", "libz-mingw-w64", "libc6", "libgcc-s1", "libunwind8", "liblzma5"]
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIBRARIES = "lib/x86_64-linux-gnu"

OVERRIDES = ";".join(
    [
        "mscoree,mshtml=",  # else the first start asks to install them
        "ucrtbase,vcruntime140,vcruntime140_1,msvcp140=n,b",  # Microsoft's own before Wine's
        "winedbg.exe,winemenubuilder.exe=d",
    ]
)


class NoWine(Exception):
    """This machine cannot have it; the text says why."""


@dataclass(frozen=True)
class Wine:
    """Wine below a folder, with a Windows of its own."""

    folder: Path

    @property
    def _usr(self) -> Path:
        return self.folder / "debian" / "usr"

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get: of our own variables only what has no say in their tests."""
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "USER") if name in os.environ}
        return kept | {
            "KMP_TOPOLOGY_METHOD": "flat",  # else OpenMP asks for what Wine does not know
            "LC_ALL": "C.UTF-8",  # names of files beyond ASCII
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": OVERRIDES,
            "WINEDLLPATH": str(self._usr / _LIBRARIES / "wine"),
            "WINELOADER": str(self._usr / "lib/wine/wine64"),
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINESERVER": str(self._usr / "lib/wine/wineserver64"),
        }

    def make(self, patchelf: Path) -> None:
        """Unpack it and make its Windows."""
        debian = self.folder / "debian"
        for package in _download(self.folder / "apt"):
            subprocess.run(["dpkg-deb", "-x", package, debian], check=True)
        libraries = self._usr / _LIBRARIES
        programs = [self._usr / "lib/wine" / name for name in ("wine64", "wineserver64")]
        loader = self._usr / "lib64/ld-linux-x86-64.so.2"
        for program in programs:
            changed = ["--set-interpreter", str(loader), "--set-rpath", str(libraries)]
            subprocess.run([str(patchelf), *changed, str(program)], check=True)
        modules = sorted((libraries / "wine/x86_64-unix").glob("*.so"))
        subprocess.run([patchelf, "--set-rpath", libraries, *modules], check=True)
        # A script looks for the server where a package would be installed; it is beside it.
        server = self._usr / "lib/wine/wineserver"
        server.unlink()
        server.symlink_to("wineserver64")
        (self._usr / "share/wine/wine").symlink_to(".")
        # Debian keeps one library of Wine's in a package for cross compilers.
        system = self.folder / "prefix/drive_c/windows/system32"
        system.mkdir(parents=True)
        shutil.copy(self._usr / "x86_64-w64-mingw32/lib/zlib1.dll", system)
        with self.running():
            pass
        if not (system / "kernel32.dll").exists():
            raise NoWine("Wine could not make its Windows; run wineboot by hand to see why")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep Windows' services up meanwhile; without them every start takes seconds.

        They get no pipe of ours: they outlive the process that started them, and whoever reads
        the pipe to its end would wait for them.
        """
        server, loader = (self.environment[name] for name in ("WINESERVER", "WINELOADER"))
        self._quietly([server, "-p60"])  # a minute longer than its last process
        try:
            self._quietly([loader, "wineboot", "-i"])
            yield
        finally:
            self._quietly([server, "-k"])
            self._quietly([server, "-w"])

    def _quietly(self, command: Sequence[str]) -> None:
        quiet = subprocess.DEVNULL
        subprocess.run(
            command,
            env=self.environment,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            timeout=300,
            check=False,
        )


def check_machine() -> None:
    """Raise `NoWine` where it cannot be had."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoWine("it needs Linux on x86-64")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise NoWine(f"{program} is not there: it needs a Debian")


def _download(folder: Path) -> list[Path]:
    """Packages of the release, by an apt that knows nothing else and leaves the machine's alone."""
    archives = folder / "archives"
    for name in ("lists/partial", "cache/archives/partial", "archives"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(
        f"deb [signed-by={_KEYRING}] {_mirror()} {RELEASE} main\n", encoding="utf-8"
    )
    settings = {
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    for command in (["update"], ["download", *PACKAGES]):
        done = subprocess.run(
            ["apt-get", "-q", *options, *command], cwd=archives, capture_output=True, text=True
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise NoWine(f"apt-get {command[0]} failed: {lines[-1]}")
    return sorted(archives.glob("*.deb"))


def _mirror() -> str:
    """Where this machine has Debian from."""
    known = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for line in known.splitlines():
        address, _, component = line.partition(" ")
        if component == "main" and address.rstrip("/").endswith("/debian"):
            return address
    raise NoWine("apt-get knows no mirror of Debian")

"""Which ArtifactTool this machine needs, in the service's own words."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

EXECUTABLE = "artifacttool.exe" if sys.platform == "win32" else "artifacttool"


@dataclass(frozen=True, slots=True)
class Platform:
    """The parameters of the release lookup."""

    system: str
    machine: str
    distro: str = ""
    distro_version: str = ""

    @property
    def label(self) -> str:
        """For folder names."""
        return f"{self.system}-{self.machine}".lower()

    def query(self, version: str | None) -> dict[str, str]:
        """The query of the lookup; a pinned version goes along."""
        query = {
            "osName": self.system,
            "arch": self.machine,
            "distroName": self.distro,
            "distroVersion": self.distro_version,
            "version": version or "",
        }
        return {name: value for name, value in query.items() if value}


def this_platform() -> Platform:
    """The machine we are on."""
    system = platform.system()
    machine = _machine(system, platform.machine())
    if system != "Linux":
        return Platform(system, machine)
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return Platform(system, machine, release.get("ID", ""), release.get("VERSION_ID", ""))


def _machine(system: str, machine: str) -> str:
    """Builds exist for x86-64 only; macOS and Windows run them on ARM, Linux does not."""
    known = machine.lower()
    if known in {"amd64", "x86_64"} or (known in {"arm64", "aarch64"} and system != "Linux"):
        return "x86_64"
    return machine

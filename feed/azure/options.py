"""What can be set about an Azure feed; every value has a default that fits a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import UsageError

OVERRIDE_VARIABLE = "AZURE_DEVOPS_EXT_ARTIFACTTOOL_OVERRIDE_PATH"
"""A folder that holds `artifacttool`; the name is that of the az extension."""

_PREFIX = "MODELMILL_AZURE_"
WORK_VARIABLE = f"{_PREFIX}WORK"
CACHE_VARIABLE = f"{_PREFIX}CACHE"
_TIMEOUTS = ("CONNECT_TIMEOUT", "READ_TIMEOUT", "IDLE_TIMEOUT", "TOTAL_TIMEOUT")
VARIABLES = tuple(
    f"{_PREFIX}{name}" for name in ("CACHE", "WORK", "TOOL", "TOOL_VERSION", *_TIMEOUTS)
)


@dataclass(frozen=True)
class Options:
    """Settings of an Azure feed."""

    cache: Path
    """Where downloaded tools are kept."""
    work: Path
    """Where packages are laid out for the tool; best on the disk of the store (hard links)."""
    tool_folder: Path | None = None
    """A folder with an ArtifactTool to use as it is; None: look it up and download it."""
    tool_version: str | None = None
    """The version to download; None: the one the service offers."""
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    idle_timeout: float = 900.0
    """Seconds without a new byte after which a run of the tool counts as stuck. The tool itself
    tries a block five times with 100 s each."""
    total_timeout: float = 6 * 3600.0
    """The longest run of the tool where the caller sets no limit."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Options:
        """Read MODELMILL_AZURE_* and the override of the az extension."""

        def text(name: str) -> str | None:
            return environ.get(f"{_PREFIX}{name}") or None

        def path(value: str | None) -> Path | None:
            try:
                return Path(value).expanduser() if value else None
            except RuntimeError as error:
                raise UsageError(f"{value}: {error}", hint="name the folder in full") from None

        timeouts = {
            name.lower(): _seconds(f"{_PREFIX}{name}", value)
            for name in _TIMEOUTS
            if (value := text(name)) is not None
        }
        cache = path(text("CACHE")) or default_cache(environ)
        return cls(
            cache=cache,
            work=path(text("WORK")) or cache / "work",
            tool_folder=path(text("TOOL") or environ.get(OVERRIDE_VARIABLE)),
            tool_version=text("TOOL_VERSION"),
            **timeouts,
        )


def default_cache(environ: Mapping[str, str]) -> Path:
    """The cache folder of this user on this system."""
    if local := environ.get("LOCALAPPDATA"):
        return Path(local) / "modelmill" / "azure"
    base = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "modelmill" / "azure"
    except RuntimeError:
        raise UsageError(
            "this user has no home folder to keep ArtifactTool in",
            hint=f"set {CACHE_VARIABLE} to a folder that you can write to",
        ) from None


def _seconds(variable: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise UsageError(f"{variable} is {text!r}", hint="give a number of seconds above 0")
    return value

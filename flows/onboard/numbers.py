"""The numbers of an onboarding: the latency of a package, how its export was compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.measure.measured import Choice, Finder
from workers.host.watch import Watching
from workers.measure.benchmark import benchmark
from workers.measure.quiet import quiet
from workers.measure.result import Benchmark
from workers.measure.running import Driver


def latency(
    finder: Finder, folder: Path, what: str, tell: Callable[[str], None]
) -> Benchmark | None:
    """The benchmark of a package, made when nothing else runs on this machine; None if only an
    emulator of its device is here, whose time says nothing."""
    settings = finder.settings
    [subject] = finder.find([str(folder)], Choice())
    if subject.runtime.emulated:
        return None
    driver = Driver(finder.runtimes, Watching(settings.timeout))
    with quiet(what, wait=True, told=tell):
        return benchmark(driver, subject, settings.protocol)


def compared(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the export of a package was compared with its source model; `not`: why it was not."""
    found = [one["facts"].get("compared") for one in manifest["stages"] if one["stage"] == "export"]
    return (
        found[0] if found and isinstance(found[0], dict) else {"not": "the engine does not do it"}
    )

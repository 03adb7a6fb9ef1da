"""Which engines are installed: entry points, read but never imported in this process."""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from workers.errors import EngineNotFound
from workers.host.client import EngineSpec

GROUP = "modelmill.engines"


def installed_engines() -> dict[str, EntryPoint]:
    """Engines by name, sorted."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    return dict(sorted(found.items()))


def find_engine(name: str, python: Path | None = None) -> EngineSpec:
    """How to serve an engine, in our interpreter or in another one."""
    engines = installed_engines()
    point = engines.get(name)
    if point is None:
        near = difflib.get_close_matches(name, engines, n=1, cutoff=0.5)
        known = ", ".join(engines) or "none"
        hint = f"did you mean {near[0]}?" if near else f"installed: {known}"
        raise EngineNotFound(f"there is no engine {name!r}", hint=hint)
    if python is not None and not python.exists():
        raise EngineNotFound(
            f"engine {name}: there is no interpreter {python}",
            hint=f"set engine.{name}.python to the python of its environment",
        )
    return EngineSpec(name, point.value, python)

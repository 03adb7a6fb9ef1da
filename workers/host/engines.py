"""Which engines are installed: entry points, read but never imported in this process."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from machine.installation import importable
from matrix.nearest import hint, quote
from workers.errors import EngineNotFound
from workers.host.client import EngineSpec

GROUP = "modelmill.engines"

_EXTRAS = {"optimum": "build", "tabular": "tabular"}
_IMPORTS = {
    "optimum": ("numpy", "onnx", "onnxruntime", "optimum", "torch", "transformers"),
    "tabular": ("numpy", "onnx", "onnxruntime", "skl2onnx", "sklearn", "skops"),
    "winml": ("winml",),
}
"""What our engines import; nothing is known of other engines."""
_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""PyTorch's threads that wait actively take the processor from all other slots: exporting small
models took up to five times the processor time, and ended no sooner."""


def installed_engines() -> dict[str, EntryPoint]:
    """Engines by name, sorted."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    return dict(sorted(found.items()))


def find_engine(name: str, python: Path | None = None) -> EngineSpec:
    """How to serve an engine, in our interpreter or in another one."""
    engines = installed_engines()
    point = engines.get(name)
    if point is None:
        raise EngineNotFound(f"there is no engine {quote(name)}", hint=hint(name, engines))
    if python is not None and not python.exists():
        raise EngineNotFound(
            f"engine {name}: there is no interpreter {python}",
            hint=f"set engine.{name}.python to the python of its environment",
        )
    return EngineSpec(name, point.value, python, _ENVIRONMENT)


def extra_of(name: str) -> str:
    """The extra of modelmill that installs an engine into our own interpreter; empty: none does."""
    return _EXTRAS.get(name, "")


def missing_imports(engine: EngineSpec) -> list[str]:
    """The packages that an engine imports and its interpreter lacks, without starting that.

    An interpreter outside of a virtual environment is assumed to have them all.
    """
    needed = _IMPORTS.get(engine.name, ())
    if engine.python is None:
        return [name for name in needed if not importable(name)]
    environment = engine.python.parent.parent
    sites = [*environment.glob("lib/python3*/site-packages"), environment / "Lib/site-packages"]
    places = [str(site) for site in sites if site.is_dir()]
    return [name for name in needed if places and PathFinder.find_spec(name, places) is None]

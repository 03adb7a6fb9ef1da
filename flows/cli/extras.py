"""What a plain `pip install modelmill` leaves out, and the extra that has it.

It is enough to plan and to read a feed. What else a command imports it imports before it does
anything, so a missing distribution ends it with one line and nothing half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from matrix.errors import UsageError

EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "azure": ("azure", "msrest", "requests"),
        "sweep": ("alembic", "fastapi", "orjson", "prefect", "pydantic", "sqlalchemy", "sqlmodel"),
        "build": ("numpy", "onnx", "onnxruntime", "optimum", "torch", "transformers"),
    }
)
"""The importable packages of each extra that our own process may ask for."""


class NotInstalled(UsageError):
    """This installation lacks what the command needs."""


def not_installed(error: ModuleNotFoundError) -> NotInstalled | None:
    """The failed import in a user's words; None: no extra of ours would mend it."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return NotInstalled(
                f"this needs {package}, which is not installed",
                hint=f"pip install -c constraints.txt 'modelmill[{extra}]'",
            )
    return None

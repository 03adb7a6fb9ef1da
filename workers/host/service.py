"""Serves an engine in the child process. Standard library only."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from importlib import metadata
from typing import Any

from workers.engine import Engine, Request, StageJob, from_json, to_json


class EngineService:
    """The operations `tools`, `plan` and `run` of an engine, and its environment."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def call(self, op: str, args: dict[str, Any], progress: Any) -> Any:
        """Answer one request."""
        if op == "tools":
            return dict(self._engine.tools())
        if op == "plan":
            return to_json(self._engine.plan(from_json(args, Request)))
        if op == "run":
            job = replace(from_json(args, StageJob), progress=progress)
            return to_json(self._engine.run(job))
        if op == "environment":
            return environment()
        raise ValueError(f"an engine has no operation {op!r}")


def environment() -> dict[str, Any]:
    """The interpreter, the system and every distribution that the child runs with.

    Asked in the host because its interpreter need not be ours. It takes a tenth of a second, and
    no run of a stage changes it.
    """
    found: dict[str, dict[str, str]] = {}
    for distribution in metadata.distributions():
        # The first on the path is what is imported; a broken installation lacks its metadata.
        about: Any = distribution.metadata
        name, version = (about.get("Name"), about.get("Version")) if about else (None, None)
        if name and version:
            key = re.sub(r"[-_.]+", "-", name).lower()
            found.setdefault(
                key,
                {
                    "name": name,
                    "version": version,
                    # Only what is an SPDX expression by definition; older fields are free text.
                    "license": about.get("License-Expression") or "",
                },
            )
    return {
        "python": {
            "implementation": platform.python_implementation(),
            "version": platform.python_version(),
        },
        "system": {
            "name": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
        },
        "distributions": [found[name] for name in sorted(found)],
    }

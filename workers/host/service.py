"""An engine as something the child can serve. Standard library only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from workers.engine import Engine, Request, StageJob
from workers.host import codec
from workers.host.surroundings import surroundings


class EngineService:
    """The operations `tools`, `plan` and `run` of one engine, and what it all runs in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def call(self, op: str, args: dict[str, Any], progress: Any) -> Any:
        """Answer one request."""
        if op == "tools":
            return dict(self._engine.tools())
        if op == "plan":
            return codec.to_json(self._engine.plan(codec.from_json(args, Request)))
        if op == "run":
            job = replace(codec.from_json(args, StageJob), progress=progress)
            return codec.to_json(self._engine.run(job))
        if op == "surroundings":
            return surroundings()
        raise ValueError(f"an engine has no operation {op!r}")

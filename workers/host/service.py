"""An engine as something the child can serve. Standard library only."""

from __future__ import annotations

from typing import Any

from workers.engine import Engine
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
            return codec.plan_to_json(self._engine.plan(codec.request_from_json(args)))
        if op == "run":
            job = codec.job_from_json(args, progress)
            return codec.report_to_json(self._engine.run(job))
        if op == "surroundings":
            return surroundings()
        raise ValueError(f"an engine has no operation {op!r}")

"""A compiler that writes plain files in place of contexts, for tests of what is done with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.host.client import Reply
from workers.host.watch import Watching
from workers.runtimes.runtime import Runtime

RUNTIME = Runtime("qnn", "QNNExecutionProvider", "npu", "1")


@dataclass
class FakeRuntimes:
    """Compiles by writing files; `bad` names sources and how they fail."""

    bad: dict[str, Exception | str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    nothing: set[str] = field(default_factory=set)
    """Context models that hold no context."""
    calls: list[list[str]] = field(default_factory=list)

    def compile(
        self, _runtime: Runtime, args: dict[str, Any], watching: Watching
    ) -> dict[str, Any]:
        folder = Path(args["folder"])
        texts = [(folder / source).read_text() for source in args["sources"]]
        self.calls.append(texts)
        seconds: list[float] = []
        for place, (text, output) in enumerate(zip(texts, args["outputs"], strict=True)):
            watching.progress(f"compiling {place + 1}/{len(texts)}")
            error = self.bad.get(text)
            if isinstance(error, Exception):
                raise error
            (folder / output).write_text(f"half {text}")
            if error:
                return {"seconds": seconds, "failed": place, "error": error}
            (folder / output).write_text(f"context of {text}")
            seconds.append(0.5)
        (folder / "out" / "shared.bin").write_text("".join(texts))
        return {"seconds": seconds, "peak_memory": 7}

    @property
    def checker(self) -> FakeRuntimes:
        return self

    def call(self, op: str, args: dict[str, Any], *_more: Any, **_words: Any) -> Reply:
        assert op == "contexts"
        found = {
            name: {
                "nodes": [] if name in self.nothing else [{"main": True}],
                "binaries": ["shared.bin"],
                "problems": [self.problems[name]] if name in self.problems else [],
                "compatibility": {},
                "external": [],
            }
            for name in args["models"]
        }
        return Reply(found, 0, 0.0)

"""The interface of a runtime's sessions. Standard library only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

CPU = "CPUExecutionProvider"
"""ONNX Runtime's own provider, which every build of it has."""


@dataclass(frozen=True)
class Port:
    """An input or output as the runtime declares it; an open dimension is a name or None."""

    name: str
    dtype: str
    """NumPy's name of the element type; empty: not a tensor."""
    shape: tuple[int | str | None, ...]

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether values of this shape can be given; some runtimes do not report what fits."""
        fixed = [dim if isinstance(dim, int) and dim >= 0 else None for dim in self.shape]
        return not fixed or (
            len(shape) == len(fixed)
            and all(want in {None, size} for size, want in zip(shape, fixed, strict=True))
        )

    def to_json(self) -> list[Any]:
        """For the pipe."""
        return [self.name, self.dtype, list(self.shape)]


class Session(Protocol):
    """A model opened on a runtime; `close` releases its memory."""

    inputs: list[Port]
    outputs: list[Port]

    def expect(self, names: Sequence[str]) -> None:
        """The outputs' names in the graph, in order, for runtimes that rename them."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name."""

    def prepared(self, feeds: Mapping[str, Any]) -> Callable[[], object]:
        """The runtime's own call on these inputs, with nothing around it: what is timed."""

    def nodes(self) -> dict[str, int]:
        """The number of nodes that each provider took; empty: the runtime does not report it."""

    def assigned(self) -> dict[str, list[list[str]]]:
        """By provider, type and name of every node; empty: the runtime does not report it."""

    def parts(self) -> dict[str, int]:
        """The number of parts of the graph that each provider runs as a whole; empty: unknown."""

    def times(self) -> list[dict[str, Any]]:
        """What the runtime itself counts for each operator; empty: nothing."""

    def close(self) -> None:
        """Release it."""


def threads() -> int:
    """The number of threads that a session may use; 0: its own default."""
    import os

    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() else 0


def processor() -> str:
    """The name of the CPU: a compiler that asks it gives another result on another one."""
    import platform
    from pathlib import Path

    with contextlib.suppress(OSError):
        for row in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if row.startswith("model name"):
                return row.partition(":")[2].strip()
    return platform.processor() or platform.machine()

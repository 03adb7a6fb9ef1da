"""Errors that the engines understand: one line, the failure class, the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from matrix.status import FailureClass
from workers.engine import StageError

export_error = partial(StageError, failure=FailureClass.EXPORT)
"""The source or the exporter cannot provide this model."""
network_error = partial(StageError, failure=FailureClass.NETWORK, retryable=True)
"""The hub cannot be reached now; a later attempt may succeed."""
auth_error = partial(StageError, failure=FailureClass.AUTH)
"""The hub refuses this user."""
optimize_error = partial(StageError, failure=FailureClass.OPTIMIZE)
"""ONNX Runtime cannot optimize this graph."""
quantize_error = partial(StageError, failure=FailureClass.QUANTIZE)
"""Quantization, its data, or the fp16 conversion failed."""
disk_error = partial(StageError, failure=FailureClass.DISK)
"""There is no room for what the stage writes."""
unsupported = partial(StageError, failure=FailureClass.UNSUPPORTED)
"""The engine cannot build this, here or anywhere."""


def one_line(error: BaseException, limit: int = 600) -> str:
    """The text of a foreign exception, short enough for a message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


@contextmanager
def failing(
    error: Callable[[str, str], StageError], what: str, hint: str = "", *kinds: type[Exception]
) -> Iterator[None]:
    """Turn what foreign code raises in the block into an error that says what was tried.

    Without `kinds` it may be anything, and its type is part of the text.
    """
    expected = kinds or (Exception,)
    try:
        yield
    except (StageError, MemoryError):
        raise
    except expected as raised:
        kind = "" if kinds else f"{type(raised).__name__}: "
        reason = getattr(raised, "strerror", None) or one_line(raised)
        raise error(f"{what}: {kind}{reason}", hint) from raised


def listed(names: Iterable[str]) -> str:
    """Sorted names for a hint."""
    return ", ".join(sorted(names))

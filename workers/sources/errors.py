"""Errors that the engines understand: one line, the failure class, the next step."""

from __future__ import annotations

from collections.abc import Iterable

from matrix.status import FailureClass
from workers.engine import StageError


def export_error(message: str, hint: str = "") -> StageError:
    """The source or the exporter cannot provide this model."""
    return StageError(message, failure=FailureClass.EXPORT, hint=hint)


def network_error(message: str, hint: str = "") -> StageError:
    """The hub cannot be reached now; a later attempt may succeed."""
    return StageError(message, failure=FailureClass.NETWORK, hint=hint, retryable=True)


def auth_error(message: str, hint: str = "") -> StageError:
    """The hub refuses this user."""
    return StageError(message, failure=FailureClass.AUTH, hint=hint)


def optimize_error(message: str, hint: str = "") -> StageError:
    """ONNX Runtime cannot optimize this graph."""
    return StageError(message, failure=FailureClass.OPTIMIZE, hint=hint)


def quantize_error(message: str, hint: str = "") -> StageError:
    """Quantization, its data, or the fp16 conversion failed."""
    return StageError(message, failure=FailureClass.QUANTIZE, hint=hint)


def one_line(error: BaseException, limit: int = 300) -> str:
    """The text of a foreign exception, short enough for a message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def listed(names: Iterable[str]) -> str:
    """Sorted names for a hint."""
    return ", ".join(sorted(names))

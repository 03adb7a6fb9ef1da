"""Exceptions of winml-cli and its libraries, as one line with a class and a next step.

The class comes from the type of an exception and its error number, never from its text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from machine.disk import is_full
from matrix.status import FailureClass
from workers.engine import StageError
from workers.sources.errors import one_line, unsupported


@contextlib.contextmanager
def failing_as(failure: FailureClass, what: str, hint: str = "") -> Iterator[None]:
    """Turn what winml-cli's code raises into a `StageError` that says what was tried."""
    try:
        yield
    except (StageError, MemoryError):
        raise
    except ImportError as error:
        raise unsupported(
            f"{what}: a package of winml-cli's environment cannot be imported: {one_line(error)}",
            "modelmill doctor; modelmill engine install winml",
        ) from error
    except OSError as error:
        full = is_full(error) or bool(getattr(error, "disk_full", False))
        text = "the disk is full" if full else one_line(error)
        raise StageError(
            f"{what}: {text}",
            failure=FailureClass.DISK if full else failure,
            hint="free some space or set --disk-budget" if full else hint,
        ) from error
    # winml-cli, Transformers, Optimum and ONNX Runtime raise anything (AttributeError for a missing
    # configuration value, pybind errors, ...): all of it means that this stage failed.
    except Exception as error:
        kind = type(error).__name__
        raise StageError(
            f"{what}: {kind}: {one_line(error)}", failure=failure, hint=hint
        ) from error

"""Cell ids: `MODEL:TASK@TARGET[:PRECISION][+PROFILE]`, printed and parsed here and nowhere else.

An id is typed at a shell, shown in logs, stored as a key and matched by globs. What would make
it ambiguous in any of those places cannot be part of a model's id or task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from matrix.errors import UsageError
from matrix.nearest import quote
from matrix.policy import PRECISIONS

SHAPE = "MODEL:TASK@TARGET[:PRECISION][+PROFILE]"
SYNTAX = frozenset("@:")
GLOBBING = frozenset("*?[]{},!")
UNSAFE = frozenset("\\\"'`<>|$;&#%")
LONGEST_ID = 200
LONGEST_TASK = 64
TASK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
LABEL = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class CellId:
    """The parts of a cell id; `precision` is None for the target's default."""

    model: str
    task: str
    target: str
    precision: str | None = None
    profile: str | None = None

    def __str__(self) -> str:
        return cell_id(self.model, self.task, self.target, self.precision, self.profile)


def cell_id(
    model: str, task: str, target: str, precision: str | None = None, profile: str | None = None
) -> str:
    """Print a cell id."""
    left = f"{model}:{task}" if task else model
    right = f"{target}:{precision}" if precision else target
    return f"{left}@{right}+{profile}" if profile else f"{left}@{right}"


def parse(text: str) -> CellId:
    """Read a cell id; `str(parse(text)) == text` for everything that is accepted."""
    left, at, right = text.partition("@")
    model, colon, task = left.partition(":")
    right, plus, profile = right.partition("+")
    target, tail, precision = right.partition(":")
    fault = (
        ("" if at else "there is no '@'")
        or model_fault(model)
        or (task_fault(task) if colon else "")
        or ("" if LABEL.fullmatch(target) else f"{quote(target)} cannot be a target")
        or (
            f"{quote(precision)} is not a precision" if tail and precision not in PRECISIONS else ""
        )
        or ("the task is empty" if colon and not task else "")
        or (
            f"{quote(profile)} cannot be a profile" if plus and not LABEL.fullmatch(profile) else ""
        )
    )
    if fault:
        raise UsageError(f"{quote(text)} is not a cell id: {fault}", hint=f"write {SHAPE}")
    return CellId(model, task, target, precision or None, profile or None)


def model_fault(text: str) -> str:
    """Why a text cannot be a model id; empty if it can."""
    if not text:
        return "the model id is empty"
    if len(text) > LONGEST_ID:
        return f"the model id is longer than {LONGEST_ID} characters"
    for char in text:
        if char in SYNTAX or char in GLOBBING or char in UNSAFE:
            return f"the model id contains {char!r}, which cell ids reserve"
        if not char.isprintable() or char.isspace():
            return f"the model id contains {char!a}, a blank or a control character"
    if any(part in {"", ".", ".."} for part in text.split("/")):
        return "the model id has an empty, '.' or '..' part between its slashes"
    return ""


def task_fault(text: str) -> str:
    """Why a text cannot be a task; empty if it can, like no task at all."""
    if text and not TASK.fullmatch(text):
        return f"the task {quote(text)} may hold only letters, digits, '-', '_' and '.'"
    if len(text) > LONGEST_TASK:
        return f"the task is longer than {LONGEST_TASK} characters"
    return ""

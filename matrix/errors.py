"""The base of every error that a user can meet, and the errors of the matrix itself.

An error of ours is one clear line: what is wrong, where, and what to do next (`hint`). The
command line turns it into that line and `exit_code`; anything else that reaches the top is a
bug and shows its traceback. Each room has a page of errors like this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")


class Exit(IntEnum):
    """The exit codes of the command line."""

    OK = 0
    CELLS_FAILED = 1
    USAGE = 2
    HOST_CANNOT_PUBLISH = 3
    NOTHING_SELECTED = 4
    UNUSABLE = 5
    REJECTED = 6
    INTERRUPTED = 130


class MillError(Exception):
    """A condition that the user can act on."""

    exit_code: Exit = Exit.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(MillError):
    """The command line or a setting is wrong."""

    exit_code = Exit.USAGE


class Unusable(MillError):
    """A folder, a file, a server or this machine cannot be used."""

    exit_code = Exit.UNUSABLE


class NothingSelected(MillError):
    """The selection leaves no cell."""

    exit_code = Exit.NOTHING_SELECTED


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in the input of a plan: where it is, what it is, what to do."""

    where: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        tail = f" ({self.hint})" if self.hint else ""
        return f"{self.where}: {self.message}{tail}"


MOST_PROBLEMS = 50
"""How many problems are printed at most."""


def in_lines(title: str, problems: Sequence[object]) -> str:
    """A title with the first problems below it."""
    more = len(problems) - MOST_PROBLEMS
    left = [f"... and {more} more"] if more > 0 else []
    return "\n  ".join([title, *map(str, problems[:MOST_PROBLEMS]), *left])


class PlanError(MillError):
    """All problems of a catalog, its selection and its names together, or of files like those."""

    exit_code = Exit.USAGE

    def __init__(self, problems: Sequence[Problem], within: str = "the plan") -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{count} problem{'s' if count != 1 else ''} in {within}:"
        super().__init__(in_lines(head, self.problems))


def looked_up(
    where: str, names: Iterable[str], lookup: Callable[[str], T], problems: list[Problem]
) -> list[T]:
    """What is found under these names; a name that the lookup refuses is a problem."""
    found = []
    for name in names:
        try:
            found.append(lookup(name))
        except UsageError as err:
            problems.append(Problem(where, err.message, err.hint))
    return found

"""Failures grouped by cause, as every output shows them.

One broken export fails eight cells, one missing tool a whole catalog. Their messages differ only in
what belongs to a cell (its id, files, measured numbers), so that is removed before they are
compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flows.output.meanings import CAUSES
from flows.output.quantity import brief, counted, named
from matrix.model import is_export
from matrix.status import FailureClass
from state.records import Outcome

MOST_MODELS = 3
"""Models that a line names."""

_REPEATED = re.compile(r"\s*\(the same run failed for (.*)\)\s*$", re.DOTALL)
"""What the builder adds if it skips a stage that is known to fail."""
_OUTPUT = re.compile(r"(^|: |; )[^;:]+? on [^;:]+?: (?=signal-to-noise|a value|[\d.]+%)")
"""The output and the runtime in front of each finding of parity."""
_VARIABLE = (
    (re.compile(r"signal-to-noise[^;]*|a value is off[^;]*|[\d.]+%[^;]* agree[^;]*"), "APART"),
    (re.compile(r"\S*[/\\]\S*"), "PATH"),
    (re.compile(r"\b(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{7,}\b", re.IGNORECASE), "HEX"),
    (re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?%?", re.IGNORECASE), "0"),
    (re.compile(r"\b0 ?(?:[kMGT]i?B|B|ms|s|m|h)\b"), "0"),
)
_UNNAMED = re.compile(r"modelmill (?:retry(?= --class)|resume(?=$|;))")
"""A command in a hint without the sweep that it is about."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Everything in a sweep that failed for one cause."""

    failure: FailureClass
    message: str
    """Of the first cell."""
    alike: bool
    """Whether all messages are the same; otherwise `message` is an example."""
    hint: str
    cells: tuple[str, ...]
    """In the order of ids; without exports."""
    exports: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def extent(self) -> str:
        """How much failed: one id, or the number of cells and their models."""
        if len(self.cells) == 1:
            return self.cells[0]
        names = named(self.models, MOST_MODELS)
        what = counted(len(self.cells), "cell")
        if not self.cells:
            what = "the export" if len(self.exports) == 1 else f"{len(self.exports)} exports"
        if len(self.models) == 1:
            return f"{what} of {names}"
        return f"{what} of {len(self.models)} models ({names})"

    @property
    def text(self) -> str:
        """The message as one line."""
        return f"{'' if self.alike else 'for example: '}{brief(self.message)}"

    def lines(self, indent: str = "  ") -> list[str]:
        """What failed and why, then the next step."""
        return [
            f"{indent}{self.failure}  {self.extent}: {self.text}",
            f"{indent}  next: {brief(self.hint)}",
        ]

    def to_json(self) -> Mapping[str, Any]:
        """For machines."""
        told = asdict(self)
        return {"class": str(told.pop("failure")), **told}


def since_when(group: FailureGroup, failing: Mapping[str, str]) -> str:
    """Since which sweep the cells of a cause fail; `failing`: the stamp for each that failed
    before."""
    cells = (*group.cells, *group.exports)
    known = [failing[cell] for cell in cells if cell in failing]
    if not known:
        return "new"
    new = len(cells) - len(known)
    return f"since {min(known)}" + (f", {new} new" if new else "")


def group_failures(outcomes: Iterable[Outcome], sweep: str = "") -> tuple[FailureGroup, ...]:
    """The causes of all failures, those with the most cells first.

    `sweep`: its stamp, and the flags that a command about it needs.
    """
    groups: dict[tuple[FailureClass, str], list[Outcome]] = {}
    for one in outcomes:
        if one.status.failed:
            kind = one.failure or FailureClass.UNKNOWN
            groups.setdefault((kind, common_text(one)), []).append(one)
    made = [_group(kind, members, sweep) for (kind, _text), members in groups.items()]
    return tuple(sorted(made, key=lambda group: -len(group.cells)))


def common_text(one: Outcome) -> str:
    """The message of a failure without what belongs to its cell alone."""
    text = " ".join(_message(one).split())
    for name in _names(one):
        if name in text:
            text = re.sub(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", "ID", text)
    text = _OUTPUT.sub(r"\1", text)
    for shape, instead in _VARIABLE:
        text = shape.sub(instead, text)
    parts: list[str] = []
    for part in text.split("; "):  # one finding or five of a kind
        if not any(known.endswith(part) for known in parts):
            parts.append(part)
    return "; ".join(parts).casefold()


def in_passing(failure: str, message: str) -> str:
    """A failure in the line of its cell while the sweep runs: a message that another cell has
    already shown is not repeated."""
    repeated = _REPEATED.search(message)
    return f"{failure} as {repeated[1]}" if repeated else brief(f"{failure} {message}")


def _message(one: Outcome) -> str:
    return _REPEATED.sub("", one.message or "")


def _names(one: Outcome) -> list[str]:
    """The names of this cell, its model and its package, longest first."""
    target = one.cell.rpartition("@")[2]
    model = one.model.rpartition(":")[0]
    short = model.rpartition("/")[2]
    names = {one.cell, one.model, model, target, one.target, one.precision, one.package}
    names.add(one.version)
    if re.search(r"[\d_-]", short):  # a model called `encoder` must not take words out of sentences
        names.add(short)
    return sorted(filter(None, names), key=len, reverse=True)


def _group(kind: FailureClass, members: Sequence[Outcome], sweep: str) -> FailureGroup:
    hints = Counter(one.hint for one in members if one.hint)
    hint = hints.most_common(1)[0][0] if hints else CAUSES[kind].next_step
    messages = {" ".join(_message(one).split()) for one in members}
    return FailureGroup(
        failure=kind,
        message=_message(members[0]),
        alike=len(messages) == 1,
        # Who noted it knew the sweep, or not even that.
        hint=_UNNAMED.sub(rf"\g<0> {sweep}", hint) if sweep else hint,
        cells=tuple(one.cell for one in members if not is_export(one.cell)),
        exports=tuple(one.cell for one in members if is_export(one.cell)),
        models=tuple(dict.fromkeys(one.model for one in members)),
    )

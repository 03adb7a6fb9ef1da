"""The targets, read from data: which EP on which device, in which order, with which policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from matrix.cellid import LABEL
from matrix.errors import PlanError, Problem, UsageError
from matrix.globs import compiled
from matrix.model import CHANNELS, REWRITES, Target
from matrix.nearest import hint, quote
from matrix.policy import (
    AUTO,
    FORMS,
    NAMES,
    PLAIN_FORM,
    canonical,
    default_of,
    takes,
)
from matrix.reader import Entry, parse_toml, read_text

DATA = Path(__file__).parent / "data" / "targets.toml"
DEFAULT = "default"
"""The matrix that has no others but the targets that every matrix has."""
OPSETS = (7, 30)
LEVELS = ("disabled", "basic", "extended")
LONGEST_LABEL = 32
RESERVED = ("export", "index")
"""First words of the versions of exports and indexes, so no label may begin with them."""


@dataclass(frozen=True, slots=True)
class Ep:
    """An execution provider: its names and the devices it runs on."""

    name: str
    provider: str
    devices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    internal_quantization: bool = False
    """It quantizes by itself."""
    rewrites: tuple[str, ...] = ()
    channels: tuple[str, ...] = CHANNELS
    """What its targets have unless their rows say otherwise."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names."""
        return (self.name, self.provider, *self.aliases)


class Targets:
    """The targets in order, found by label, alias or glob."""

    def __init__(
        self,
        rows: Iterable[Target],
        eps: Iterable[Ep],
        matrices: Mapping[str, str],
        chosen: Collection[str] = (),
    ) -> None:
        self.every = tuple(rows)
        """Those of all matrices, which `get` finds."""
        self.rows = tuple(
            row for row in self.every if row.label in chosen or row.label not in matrices
        )
        self.eps = tuple(eps)
        self._matrices = matrices
        self._by_name: dict[str, Target] = {}
        for row in self.every:
            for name in row.names:
                self._by_name.setdefault(_fold(name), row)
        self._eps: dict[str, Ep] = {}
        for ep in self.eps:
            for name in ep.names:
                self._eps.setdefault(name.casefold(), ep)

    def __iter__(self) -> Iterator[Target]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, matrix: str, names: Iterable[str] = ()) -> Targets:
        """The same with the targets of a matrix, and those that are named: by a label, an alias or
        an execution provider."""
        known = (DEFAULT, *dict.fromkeys(self._matrices.values()))
        if matrix not in known:
            raise UsageError(f"there is no matrix {quote(matrix)}", hint=hint(matrix, known))
        chosen = {label for label, name in self._matrices.items() if name == matrix}
        for name in names:
            if row := self._by_name.get(_fold(name)):
                chosen.add(row.label)
            if ep := self._eps.get(name.strip().casefold()):
                chosen.update(row.label for row in self.every if row.ep == ep.name)
        return Targets(self.every, self.eps, self._matrices, chosen)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in order."""
        return tuple(row.label for row in self.rows)

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device that some EP runs on."""
        return tuple(dict.fromkeys(device for ep in self.eps for device in ep.devices))

    def get(self, name: str) -> Target:
        """The target of that label or alias."""
        found = self._by_name.get(_fold(name))
        if found is None:
            every = [row.label for row in self.every]
            raise UsageError(f"unknown target {quote(name)}", hint=hint(name, every))
        return found

    def match(self, pattern: str) -> tuple[Target, ...]:
        """The targets that a label, an alias or a glob over labels names; at least one."""
        if not any(char in pattern for char in "*?[{}"):
            return (self.get(pattern),)
        match = compiled(label_glob(pattern)).match
        found = tuple(row for row in self.rows if match(row.label))
        if not found:
            raise UsageError(f"no target matches {quote(pattern)}", hint=hint(pattern, self.labels))
        return found

    def label_or_glob(self, pattern: str) -> str:
        """The label, if a pattern names one target, else a glob over labels."""
        found = self.match(pattern)
        return found[0].label if len(found) == 1 else label_glob(pattern)

    def ep(self, name: str) -> str:
        """The short name of an EP, from any of its names."""
        found = self._eps.get(name.strip().casefold())
        if found is None:
            raise UsageError(
                f"unknown execution provider {quote(name)}",
                hint=hint(name, [item.name for item in self.eps]),
            )
        return found.name

    def provider_called(self, name: str) -> str:
        """The provider of a target or execution provider of that name; empty: there is none."""
        found = self._by_name.get(_fold(name)) or self._eps.get(name.strip().casefold())
        return found.provider if found else ""

    def device(self, name: str) -> str:
        """A device's name."""
        folded = name.strip().casefold()
        if folded not in self.devices:
            raise UsageError(f"unknown device {quote(name)}", hint=hint(name, self.devices))
        return folded


def label_glob(pattern: str) -> str:
    """A glob in the case of labels; dashes stay, because `[...]` may contain them."""
    return pattern.strip().casefold()


def _fold(name: str) -> str:
    return name.strip().casefold().replace("-", "_")


def load_targets(extra: Path | None = None) -> Targets:
    """The default matrix, followed by the targets of the user's own file; those of other matrices
    are chosen by `Targets.of`.

    A row whose label exists replaces that row in place; so a policy is changed.
    """
    problems: list[Problem] = []
    eps: dict[str, Ep] = {}
    rows: dict[str, Target] = {}
    matrices: dict[str, str] = {}
    for path in (DATA, extra) if extra else (DATA,):
        top = Entry(parse_toml(read_text(path), path.name), path.name, problems)
        for entry in top.rows("ep", "name"):
            ep = _ep(entry)
            eps.update({ep.name: ep} if ep else {})
        for entry in top.rows("target", "label"):
            matrix = entry.text("matrix", empty=False)
            if row := _target(entry, eps):
                rows[row.label] = row
                matrices.pop(row.label, None)
                matrices |= {row.label: matrix} if matrix else {}
        top.known.append("profile")
        top.close()
    _check_names(list(rows.values()), list(eps.values()), problems)
    if problems:
        raise PlanError(problems)
    return Targets(rows.values(), eps.values(), matrices)


def _limits(entry: Entry, ep: Ep) -> dict[str, tuple[str, ...]]:
    """What quantized graphs of a provider or target may hold."""
    rewrites = entry.several("rewrites", REWRITES, "rewrite")
    channels = entry.several("channels", CHANNELS, "operator")
    return {
        "rewrites": ep.rewrites if rewrites is None else rewrites,
        "channels": ep.channels if channels is None else channels,
    }


def _ep(entry: Entry) -> Ep | None:
    found = entry.record(Ep, **_limits(entry, Ep("", "")))
    entry.close()
    if found.name and not LABEL.fullmatch(found.name):
        entry.bad(f"name {quote(found.name)} may hold only a-z, 0-9 and '_'")
    if not found.devices:
        entry.bad("devices must name at least one device")
    return found if found.name and found.provider and found.devices else None


def _target(entry: Entry, eps: dict[str, Ep]) -> Target | None:
    label = entry.needed("label")
    ep = _known_ep(entry, eps)
    flag = entry.flag("internal_quantization")
    row = entry.record(
        Target,
        label=label,
        ep=ep.name if ep else "",
        device=entry.needed("device"),
        provider=entry.text("provider", empty=False) or (ep.provider if ep else ""),
        internal_quantization=(ep and ep.internal_quantization) or False if flag is None else flag,
        precision=_precision(entry, "precision", AUTO),
        auto=_precision(entry, "auto", "fp32"),
        language=_precision(entry, "language", ""),
        opset=_opsets(entry),
        activations=_bits(entry),
        optimization=entry.choice("optimization", LEVELS) or "basic",
        weight_form=entry.choice("weight_form", FORMS) or PLAIN_FORM,
        accuracy_level=entry.integer("accuracy_level", 0, 4) or 0,
        **_limits(entry, ep or Ep("", "")),
    )
    entry.close()
    _check_row(entry, row, ep)
    return row if row.label else None


def _known_ep(entry: Entry, eps: dict[str, Ep]) -> Ep | None:
    name = entry.needed("ep")
    if not name:
        return None
    for ep in eps.values():
        if name.casefold() in map(str.casefold, ep.names):
            return ep
    entry.bad(f"unknown execution provider {quote(name)}", hint(name, eps) + "; or add an [[ep]]")
    return None


def _precision(entry: Entry, key: str, default: str) -> str:
    name = entry.text(key)
    if name is None:
        return default
    found = canonical(name)
    if found is None or (key == "auto" and found == AUTO):
        entry.bad(f"{key} {quote(name)} is not a precision", hint(name, NAMES))
        return default
    return found


def _opsets(entry: Entry) -> tuple[int, int]:
    entry.known.append("opset")
    value = entry.data.get("opset", [13, 21])
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        low, high = value
        if OPSETS[0] <= low <= high <= OPSETS[1]:
            return low, high
    entry.bad(f"opset must be [lowest, highest] between {OPSETS[0]} and {OPSETS[1]}")
    return (13, 21)


def _bits(entry: Entry) -> tuple[int, ...]:
    entry.known.append("activations")
    value = entry.data.get("activations", [8, 16])
    if isinstance(value, list) and set(value) <= {8, 16}:
        return tuple(value)
    entry.bad("activations must be a list of 8 and 16: the bits that it takes")
    return (8, 16)


def check_label(entry: Entry, label: str) -> None:
    """Report a label that cannot be part of cell ids and versions."""
    if label and (not LABEL.fullmatch(label) or len(label) > LONGEST_LABEL):
        entry.bad(
            f"label {quote(label)} may hold only a-z, 0-9 and single '_', "
            f"{LONGEST_LABEL} characters at most"
        )


def _check_row(entry: Entry, row: Target, ep: Ep | None) -> None:
    check_label(entry, row.label)
    if row.label.split("_")[0] in RESERVED:
        entry.bad(f"label {quote(row.label)} begins with a reserved word", "choose another one")
    if ep and row.device and row.device not in ep.devices:
        entry.bad(f"{ep.provider} has no device {quote(row.device)}", hint(row.device, ep.devices))
    for default in (default_of(row), row.language):
        if not takes(row, default):
            entry.bad(f"the default {default} is quantized, which this target cannot take")


def _check_names(rows: list[Target], eps: list[Ep], problems: list[Problem]) -> None:
    """Refuse a name of two targets or two EPs: a lookup would silently take the first."""
    names = [("target", row.label, _fold(name)) for row in rows for name in row.names]
    names += [("ep", ep.name, name.casefold()) for ep in eps for name in ep.names]
    owners: dict[tuple[str, str], str] = {}
    for kind, first, name in names:
        owner = owners.setdefault((kind, name), first)
        if owner != first:
            problems.append(Problem(f"{kind} {first}", f"{name!r} also names {owner}"))

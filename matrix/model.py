"""The nouns of the matrix: what the rules read and what a plan is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

PRIORITIES = ("P0", "P1", "P2", "P3")
DEFAULT_PRIORITIES = PRIORITIES[:3]


class SourceKind(StrEnum):
    """Where a model's weights come from."""

    HUB = "hub"
    FOLDER = "folder"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Source:
    """A Hugging Face id with a revision, a local folder, or an architecture with a seed."""

    kind: SourceKind
    ref: str
    """Hub id, absolute folder path, or (random) the Transformers model type."""
    revision: str | None = None
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    """random: values of the Transformers configuration."""
    file: str | None = None
    """hub, folder: a file in there. A ready ONNX file takes the place of an export; engines for
    models of other libraries read other files."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a catalog entry, or one target of it, overrides; None inherits."""

    precision: tuple[str, ...] | None = None
    opset: int | None = None
    shapes: Mapping[str, int] | None = None
    timeout: float | None = None
    publish_timeout: float | None = None
    skip: str | None = None
    """Why these cells are skipped on purpose."""
    verify: Mapping[str, Any] | None = None
    """What `matrix.verification` reads: thresholds, waivers, inputs, a task metric."""
    build: Mapping[str, Any] | None = None
    """What `matrix.build_options` reads: how the engine builds."""


@dataclass(frozen=True, slots=True)
class Model:
    """One catalog entry."""

    id: str
    task: str
    source: Source
    model_type: str = "unknown"
    group: str = ""
    priority: str = "P2"
    overrides: Overrides = field(default_factory=Overrides)
    per_target: Mapping[str, Overrides] = field(default_factory=dict)
    """Overrides for target labels (globs allowed); the first match in catalog order wins."""
    remote_code: bool = False
    pickle: bool = False
    new_head: str = ""
    """Why weights of the head that the checkpoint lacks may be random; empty: they may not."""
    needs: tuple[str, ...] = ()
    """What a machine of a fleet must announce to be given this model, e.g. `os:windows`."""
    dataset: Mapping[str, Any] | None = None
    """Where its samples are from (`matrix.datasets`); None: from its processor."""
    samples: Mapping[str, str] = field(default_factory=dict)
    """That synthetic samples are enough, with the reason: `kind`, `reason`; empty: they are not."""
    recipes: str | None = None
    """A folder of authored build recipes, for engines that use them (winml)."""
    context_group: str = ""
    """Compiled for a device, it shares one context with all entries that name the same group."""
    exported_as: str = ""
    """The task that it is exported for, where that is not its own: a ranker as a classifier."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a registry that are carried along unread (downloads, order, ...)."""
    where: str = ""
    """File and entry, for messages."""

    @property
    def name(self) -> str:
        """`MODEL:TASK`, the left side of a cell id and the key of a lease."""
        return f"{self.id}:{self.task}" if self.task else self.id

    @property
    def trained(self) -> bool:
        """Whether its weights were learnt, so that real inputs exist for it."""
        return self.source.kind is not SourceKind.RANDOM


CHANNELS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose weights have channels."""
REWRITES = ("biases", "empties", "epsilons", "neutral", "pools", "transposes")
"""What an engine can rewrite because of a provider's limits."""


@dataclass(frozen=True, slots=True)
class Target:
    """One EP on one device, with its policy; a row of data/targets.toml."""

    label: str
    ep: str
    device: str
    provider: str
    """ONNX Runtime's provider name."""
    aliases: tuple[str, ...] = ()
    precision: str = "auto"
    """The default of the target: w8a16, ... or auto."""
    auto: str = "fp32"
    """What `auto` resolves to."""
    language: str = ""
    """The default for models that generate text; empty: the target's own."""
    internal_quantization: bool = False
    """The EP quantizes by itself: it is never given a QDQ graph."""
    qdq: bool = True
    """False where a QDQ graph is known to fail although the EP does not quantize by itself."""
    activations: tuple[int, ...] = (8, 16)
    """The bits of quantized activations that it takes; weights alone may have fewer."""
    opset: tuple[int, int] = (13, 21)
    static_shapes: bool = False
    optimization: str = "basic"
    """ONNX Runtime's offline graph optimization level: disabled, basic, extended."""
    quantizer: str = "qnn"
    weight_form: str = "DequantizeLinear"
    """The operator that reads 4-bit weights: plain ONNX, or ONNX Runtime's `MatMulNBits`."""
    accuracy_level: int = 0
    """What MatMulNBits may round its input to: 4 is int8, 0 leaves it to the provider."""
    rewrites: tuple[str, ...] = ()
    """What is rewritten in quantized graphs because of the provider's limits."""
    channels: tuple[str, ...] = CHANNELS
    """Operators whose weights may have a scale for each channel."""
    blocked_passes: tuple[str, ...] = ()
    blocked_ops: tuple[str, ...] = ()
    why: str = ""
    """Why the row is as it is; shown in notices."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names."""
        return (self.label, *self.aliases)


@dataclass(frozen=True, slots=True)
class Profile:
    """A device generation with the options that its compiler is given."""

    label: str
    target: str
    """The label of the target whose cells it compiles."""
    runtime: str
    """The kind of runtime that compiles, and runs what was compiled."""
    options: Mapping[str, str] = field(default_factory=dict)
    file_options: tuple[str, ...] = ()
    """Options whose value names a file: its content decides the result, not its name."""
    backend: str = "api"
    embed: bool = False
    emulator: bool = False
    """Whether a software emulation of the device makes the same file."""
    asks_device: bool = False
    """Whether the compiler asks the device, so that another device gives another file."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done for a cell, resolved from catalog, target and flags."""

    precision: str
    """fp32, fp16, w8a16, w8a8, w8 (int8 weights only), w4 (4-bit weights only) or w4a16."""
    default: bool
    """Whether that is the target's own default: only other precisions show in ids and versions."""
    asked: str | None
    opset: int
    optimization: str
    static_shapes: bool
    shapes: Mapping[str, int]
    quantizer: str | None
    """The form of a quantized graph, in words of the engine; of 4-bit weights their operator."""
    blocked_passes: tuple[str, ...]
    blocked_ops: tuple[str, ...]
    notices: tuple[str, ...] = ()
    build: Mapping[str, Any] = field(default_factory=dict)
    """The catalog's options for the engine (`matrix.build_options`)."""
    rewrites: tuple[str, ...] = ()
    channels: tuple[str, ...] = CHANNELS
    accuracy_level: int = 0
    """As the target has them, where a precision is quantized."""
    parity: Mapping[str, float] = field(default_factory=dict)
    """Of a quantized precision: the catalog's own threshold, which decides about another try."""

    @property
    def shown(self) -> str | None:
        """The precision, where it shows in ids and versions."""
        return None if self.default else self.precision


@dataclass(frozen=True, slots=True)
class Origin:
    """A portable package that is there already, and what a compiled cell is made from."""

    version: str
    """In the package of the cell; empty: it is a local folder."""
    tree: str


@dataclass(frozen=True, slots=True)
class Cell:
    """Model x target (x precision, x profile): the unit that is built, published and recorded."""

    id: str
    model: Model
    target: Target
    policy: Policy
    package: str
    version: str
    timeout: float
    publish_timeout: float
    skip: str | None = None
    needs: tuple[str, ...] = ()
    """What it needs of a machine besides what the whole sweep needs; see `matrix.needs`."""
    profile: Profile | None = None
    """What a compiled cell is made for; None: a portable one."""
    origin: Origin | None = None
    """The package that is compiled; None: the portable model is built."""
    members: tuple[Cell, ...] = ()
    """Of a context group of several entries: the portable cells that it compiles, in order."""

    @property
    def shares_context(self) -> bool:
        """Whether all its graphs are compiled into one context."""
        return self.profile is not None and bool(self.model.context_group)

    @property
    def portable(self) -> Cell:
        """The cell that a compiled one is made from."""
        if self.profile is None:
            return self
        return replace(self, id=self.id.removesuffix(f"+{self.profile.label}"), profile=None)

    @property
    def column(self) -> str:
        """The label of the target, with the profile of a compiled cell: `qnn_npu+htp73`."""
        return f"{self.target.label}+{self.profile.label}" if self.profile else self.target.label


COMMON_OPSET = 17
"""An opset that every target of the default matrix supports, so that all share one export."""

EXPORT = "export"
"""Takes the place of the target in the id and version of an export."""


def is_export(cell_id: str) -> bool:
    """Whether an id is an export's; no target can have that label."""
    return cell_id.rpartition("@")[2].partition(":")[0] == EXPORT


@dataclass(frozen=True, slots=True)
class PlannedPackage:
    """A version that a sweep may publish: a cell, or an export as `MODEL:TASK@export[:opsetN]`.

    An export is published once per model (and opset), and the manifest of every cell names it by
    its digest. It is planned, seeded, published, recorded and resumed like a cell.
    """

    id: str
    cell: Cell
    """For an export: the first of the cells made of it that need the least of a machine; its policy
    says how the export is made."""
    package: str
    version: str
    is_export: bool = False

    @property
    def target(self) -> str:
        """The label under which the state files it."""
        return EXPORT if self.is_export else self.cell.column

    @property
    def as_cell(self) -> Cell:
        """The cell under the package name and version of this one."""
        return replace(self.cell, package=self.package, version=self.version)


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model with its cells: the unit of distribution, because they share the export."""

    model: Model
    cells: tuple[Cell, ...]
    export_package: str
    export_version: str
    """Of the export with the common opset; another opset is appended, as in the id."""

    @property
    def name(self) -> str:
        """The key of the lease on this model."""
        return self.model.name

    @property
    def exports(self) -> tuple[PlannedPackage, ...]:
        """One for each opset of its cells, nearly always one."""
        found: dict[int, PlannedPackage] = {}
        for cell in self.cells:
            opset = cell.policy.opset
            if cell.skip is not None or cell.origin is not None or cell.members:
                continue
            if opset not in found or len(cell.needs) < len(found[opset].cell.needs):
                common = opset == COMMON_OPSET
                found[opset] = PlannedPackage(
                    id=f"{self.name}@{EXPORT}" + ("" if common else f":opset{opset}"),
                    cell=cell,
                    package=self.export_package,
                    version=self.export_version + ("" if common else f"-opset{opset}"),
                    is_export=True,
                )
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """A sweep before it starts."""

    stamp: str
    models: tuple[PlannedModel, ...]
    index_package: str
    index_version: str
    engine: str
    self_contained: bool = False
    notices: tuple[str, ...] = ()

    def cells(self) -> Iterator[Cell]:
        """Every cell, model after model."""
        for model in self.models:
            yield from model.cells

    def packages_of(self, model: PlannedModel) -> Iterator[PlannedPackage]:
        """The packages of one model in build order: its exports first, then its cells."""
        if not self.self_contained:
            yield from model.exports
        for cell in model.cells:
            yield PlannedPackage(cell.id, cell, cell.package, cell.version)

    def packages(self) -> Iterator[PlannedPackage]:
        """The packages of every model; the index is not one of them."""
        for model in self.models:
            yield from self.packages_of(model)

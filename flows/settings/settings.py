"""Every setting there is: flags, variables, file keys, docs, Prefect's form and what a sweep
records are made from the fields of `Settings`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.output.quantity import parse_duration, parse_size
from flows.settings.options import (
    Option,
    Scope,
    measure,
    options_of,
    ordered,
    parse_cache,
    parse_demand,
    parse_level,
    parse_number,
    parse_runtime,
    place,
    planned,
    selection,
    setting,
    swept,
)
from matrix.cellid import parse
from matrix.model import DEFAULT_PRIORITIES, EXPORT, PRIORITIES
from matrix.verification import RUNGS
from workers.measure.result import Protocol
from workers.verify.ladder.levels import DEFAULT_LEVEL

PLAN, SWEEP, RUN = Scope.PLAN, Scope.SWEEP, Scope.RUN
DEFAULTS = Protocol()
"""The protocol of measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings of a run, and where each came from."""

    home: str = place(".modelmill", "folder for state, store, logs and the default feed")
    state: str | None = place(
        None, "state database: a file or postgresql://...; default HOME/state.db"
    )
    store: str | None = place(None, "content store folder; default HOME/store")
    cache: str | None = place(
        None,
        "stage results shared between machines: http://HOST:PORT, https://HOST or a folder",
        "URL",
        parse=parse_cache,
    )
    cache_read_only: bool = place(False, "take stage results from the cache, but put none there")
    feed: str | None = place(
        None, "where to publish: a folder, dir:FOLDER or azure:URL; default HOME/feed"
    )
    knowledge: str | None = place(
        None, "folder of your own findings; default HOME/knowledge", "FOLDER"
    )
    targets_file: str | None = place(None, "a TOML file with further targets", "FILE", scope=PLAN)
    champions: str | None = place(
        None, "a file of champions to apply to the catalog", "FILE", scope=PLAN
    )
    summary: str | None = place(
        None, "folder for summary.json, summary.md and junit.xml of the sweep", "FOLDER"
    )
    summary_url: str | None = place(
        None, "URL at which a fleet's summary folder can be read, for links in Prefect", "URL"
    )

    stamp: str | None = setting(None, "name of the batch; default today's date")
    package: str = planned("modelmill-{model}", "package name template", "TEMPLATE")
    engine: str = planned("optimum", "the engine that builds; `modelmill engine ls`", "NAME")
    skip_bad_entries: bool = planned(
        False, "leave out catalog entries that have problems instead of refusing the catalog"
    )
    matrix: str = planned(
        "default", "the targets that are built unless --target or --ep names others: default, 2026"
    )
    precision: tuple[str, ...] = planned((), "precision for every cell that supports it", "P")
    opset: int | None = planned(None, "ONNX opset for every cell")
    self_contained: bool = planned(
        False, "put the export into every package instead of publishing it once per model"
    )
    compile: tuple[str, ...] = planned(
        (),
        "device profiles to compile for, after the portable cells; `modelmill compile --list`",
        "PROFILE",
    )
    emulated: bool = planned(
        False,
        "let an emulator stand in for a device when compiling, measuring, tracing or tuning",
    )
    bench: bool = swept(False, "measure every published cell, on machines that have its device")
    warmup: int = measure(
        DEFAULTS.warmup, "runs of each session that are not counted", parse=parse_number
    )
    iterations: int = measure(DEFAULTS.iterations, "runs of each session that are counted")
    sessions: int = measure(
        DEFAULTS.sessions, "processes in which each model is opened and measured"
    )
    threads: int = measure(
        DEFAULTS.threads,
        "threads of the measured runtime; 0: the runtime's default",
        parse=parse_number,
    )
    if_changed: bool = swept(
        False, "do not publish a cell that equals its newest published version"
    )
    no_publish: bool = planned(False, "build and verify, but do not publish")
    verify: str = swept(
        DEFAULT_LEVEL,
        f"the rung that must hold, with all before it: {', '.join(RUNGS)}",
        "LEVEL",
        parse=parse_level,
    )
    publish_unverified: bool = swept(
        False, "also publish cells that fail verification, marked as such"
    )
    runtimes: tuple[str, ...] = setting(
        (),
        "runtimes that verify besides ONNX Runtime CPU, as `doctor` lists them, or none; "
        "default: all here",
        "NAME",
        parse=parse_runtime,
    )
    allow_ep_download: bool = setting(
        False, "let Windows ML download the execution providers that it offers for this machine"
    )
    demand: tuple[str, ...] = setting(
        ("release=parity@ep",),
        "what a view requires of a version: VIEW=LEVEL, or VIEW=LEVEL@ep (run on its own provider)",
        "VIEW=LEVEL",
        parse=parse_demand,
        group="promote",
    )
    keep_local: bool = setting(
        False, "keep the package folders of published cells in HOME/packages"
    )
    trust_state: bool = ordered(False, "continue with the state alone if the feed cannot be listed")
    allow_remote_code: bool = swept(
        False, "run model code for catalog entries with remote_code = true"
    )
    allow_pickle: bool = swept(False, "load pickled weights for catalog entries with pickle = true")
    needs: tuple[str, ...] = swept((), "words that a machine must offer to get cells", "WORD")
    has: tuple[str, ...] = planned(
        (), "words that this machine offers in addition to those detected", "WORD"
    )
    sign_key: str | None = setting(None, "sign provenance with this private key (PEM)", "FILE")
    key: str | None = setting(
        None,
        "take only packages that are signed with the private half of this public key (PEM)",
        "FILE",
    )
    builder_id: str | None = setting(
        None, "URI of the builder in the provenance; default: this host", "URI"
    )
    jobs: int | None = setting(None, "worker slots of this machine; default: half the cores")
    timeout: float = planned(1800.0, "time limit for one build stage")
    publish_timeout: float = planned(1800.0, "time limit for one publish")
    disk_budget: int | None = setting(
        None, "disk limit for the store and all builds on this machine", parse=parse_size
    )
    keep_free: int | None = setting(
        None,
        "disk space that builds leave free; default: a twentieth of the volume, at most 256 MiB",
        parse=parse_size,
    )
    memory: int | None = setting(None, "memory ceiling of one engine host", parse=parse_size)
    memory_budget: int | None = setting(
        None,
        "memory limit for all stages on this machine at once; default: nine tenths of its memory",
        parse=parse_size,
    )
    tries: int = ordered(4, "attempts at a publish or a stage that fails because of infrastructure")
    heartbeat: float = ordered(
        30.0, "how often a slot reports; after twice this time without a report it loses its model"
    )
    start_limit: float = ordered(
        300.0, "how long a fleet waits for a worker to begin a run before it asks for another one"
    )
    keep_sweeps: float | None = ordered(
        None,
        "how long ended sweeps stay in the state, until later sweeps remove them; default: forever",
        parse=parse_duration,
    )
    bench_machine: bool = setting(
        False,
        "announce that this machine measures, for sweeps with --bench and for tunings",
        group="worker",
    )
    retention: float = setting(
        30 * 86400.0,
        "how long a worker keeps unused stage results and logs, and the Prefect server of local "
        "sweeps its records",
        group="worker",
    )

    target: tuple[str, ...] = selection((), "only targets with these labels", "GLOB")
    ep: tuple[str, ...] = selection((), "only targets of these execution providers", "EP")
    device: tuple[str, ...] = selection((), "only targets on these devices", "DEVICE")
    model: tuple[str, ...] = selection((), "only models with these ids", "GLOB")
    task: tuple[str, ...] = selection((), "only models for these tasks", "GLOB")
    group: tuple[str, ...] = selection((), "only models of these groups", "GLOB")
    model_type: tuple[str, ...] = selection(
        (), "only models of these Transformers model types", "GLOB"
    )
    priority: tuple[str, ...] = selection(
        DEFAULT_PRIORITIES, "only models with these priorities", "P"
    )
    only: tuple[str, ...] = selection((), "only cells with these ids", "GLOB")
    skip: tuple[str, ...] = selection((), "leave out cells with these ids", "GLOB")

    cwd: Path
    """Where relative paths start."""
    engine_pythons: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of engines and runtimes that live in a venv of their own."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Of the values that are not defaults."""

    def origin(self, name: str) -> str:
        """Where the value came from."""
        return self.origins.get(name, "default")

    def values(self) -> dict[str, Any]:
        """Every setting, in the order of the fields."""
        return {name: getattr(self, name) for name in OPTIONS}

    def chosen(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of these settings that are not unset."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def replaced(self, values: Mapping[str, Any], origin: str) -> Settings:
        """The same with some values from elsewhere; what a flag or variable says still wins."""
        taken = {
            name: value
            for name, value in values.items()
            if not self.origin(name).startswith(("flag", "variable"))
        }
        return replace(self, **taken, origins={**self.origins, **dict.fromkeys(taken, origin)})

    def narrowed(self, cell_id: str) -> Settings:
        """The same for one cell, whatever was selected."""
        taken: dict[str, Any] = dict.fromkeys(SELECTION, ())
        taken |= {"priority": PRIORITIES, "only": (cell_id,)}
        cell = parse(cell_id)
        if cell.target != EXPORT:  # it may be of no matrix but its own name's
            taken["target"] = (cell.target,)
        if cell.profile:
            taken["compile"] = (cell.profile,)
        others = {name: one for name, one in self.origins.items() if name not in SELECTION}
        return replace(self, **taken, origins={**others, "only": "the cell asked for"})

    @property
    def protocol(self) -> Protocol:
        """How measurements are made."""
        return Protocol(self.warmup, self.iterations, self.sessions, self.threads)

    @property
    def allow(self) -> dict[str, bool]:
        """What models of the catalog may do if their entries say so too."""
        return {"remote_code": self.allow_remote_code, "pickle": self.allow_pickle}

    def path(self, place: str | Path) -> Path:
        """A file or folder that a setting names, from the current folder of the run."""
        return self.cwd / Path(place).expanduser()

    def variables(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """What is not a default, as the environment of a child process that reads it back."""
        return {
            OPTIONS[name].variable: OPTIONS[name].text(getattr(self, name))
            for name in self.origins
            if names is None or name in names
        }


OPTIONS: Mapping[str, Option] = {one.name: one for one in options_of(Settings)}


def _names(group: str) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.group == group)


def _belonging(*scopes: Scope) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.scope in scopes)


SELECTION, PLACES = _names("selection"), _names("place")
OF_MEASURING = _names("measure")
OF_BUILDING = (
    "engine", "precision", "opset", "runtimes", "allow_ep_download", "allow_remote_code",
    "allow_pickle", "timeout", "memory",
)  # fmt: skip
"""What a command takes that builds models outside of a sweep."""
OF_A_SWEEP = (*_names("sweep"), *OF_MEASURING)
RECORDED = _belonging(PLAN, SWEEP)
CHANGEABLE = _belonging(SWEEP, RUN)
"""What a flag may change of a sweep that a fleet has begun: its plan is kept."""
ORDERED = _belonging(PLAN, SWEEP, RUN)
"""What a sweep takes along to the machines of a fleet."""
FORM = ("feed", *(name for name in ORDERED if name not in PLACES))
"""What can be set for a sweep where it is ordered, on a server or for a schedule."""

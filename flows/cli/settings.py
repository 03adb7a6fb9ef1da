"""Every setting there is: flags, variables, file keys, docs, Prefect's form and what a sweep
records are made from the fields of `Settings`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from flows.cli.options import (
    Option,
    Scope,
    many,
    parse_count,
    parse_demand,
    parse_level,
    parse_number,
    parse_runtime,
    setting,
    switch,
)
from flows.cli.quantity import parse_duration, parse_size
from matrix.cellid import parse
from matrix.model import DEFAULT_PRIORITIES, PRIORITIES
from matrix.verification import RUNGS
from workers.measure.result import Protocol
from workers.verify.ladder.levels import DEFAULT_LEVEL

PLAN, SWEEP, RUN = Scope.PLAN, Scope.SWEEP, Scope.RUN
DEFAULTS = Protocol()
"""Of measuring."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its origin: default, file, variable, flag, or a recorded sweep."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings of a run, and where each came from."""

    home: str = setting(
        ".modelmill", "folder for state, store, logs and the default feed", group="place"
    )
    state: str | None = setting(
        None, "state database: a file or postgresql://...; default HOME/state.db", group="place"
    )
    store: str | None = setting(None, "content store folder; default HOME/store", group="place")
    feed: str | None = setting(
        None,
        "where to publish: a folder, dir:FOLDER or azure:URL; default HOME/feed",
        group="place",
    )
    knowledge: str | None = setting(
        None, "folder of your own findings; default HOME/knowledge", str, "FOLDER", group="place"
    )
    targets_file: str | None = setting(
        None, "a TOML file with further targets", str, "FILE", group="place", scope=PLAN
    )
    summary: str | None = setting(
        None,
        "folder for summary.json, summary.md and junit.xml of the sweep",
        str,
        "FOLDER",
        group="place",
    )
    summary_url: str | None = setting(
        None,
        "URL of the summary folder of a fleet's parent, for links in Prefect",
        str,
        "URL",
        group="place",
    )

    stamp: str | None = setting(None, "name of the batch; default today's date", str, "STAMP")
    package: str = setting(
        "modelmill-{model}", "package name template", str, "TEMPLATE", scope=PLAN
    )
    engine: str = setting("optimum", "the engine that builds", str, "NAME", scope=PLAN)
    skip_bad_entries: bool = switch(
        "leave out catalog entries that have problems instead of refusing the catalog", scope=PLAN
    )
    precision: tuple[str, ...] = many(
        "precision for every cell that supports it", "P", group="sweep"
    )
    opset: int | None = setting(None, "ONNX opset for every cell", parse_count, "N", scope=PLAN)
    self_contained: bool = switch("put the export into every package", scope=PLAN)
    compile: tuple[str, ...] = many(
        "device profiles to compile for, after the portable cells; `modelmill compile --list`",
        "PROFILE",
        group="sweep",
        scope=PLAN,
    )
    emulated: bool = switch(
        "let an emulator of a device compile for it, and measure with --bench", scope=PLAN
    )
    bench: bool = switch(
        "measure every published cell, on machines that have its device", scope=SWEEP
    )
    warmup: int = setting(
        DEFAULTS.warmup,
        "runs of each session that are not counted",
        parse_number,
        "N",
        group="measure",
        scope=SWEEP,
    )
    iterations: int = setting(
        DEFAULTS.iterations,
        "runs of each session that are counted",
        parse_count,
        "N",
        group="measure",
        scope=SWEEP,
    )
    sessions: int = setting(
        DEFAULTS.sessions,
        "processes in which each model is opened and measured",
        parse_count,
        "N",
        group="measure",
        scope=SWEEP,
    )
    threads: int = setting(
        DEFAULTS.threads,
        "threads of the runtime that is measured; 0: as many as it likes",
        parse_number,
        "N",
        group="measure",
        scope=SWEEP,
    )
    if_changed: bool = switch(
        "do not publish a cell that equals its newest published version", scope=SWEEP
    )
    no_publish: bool = switch("build and verify only", scope=PLAN)
    verify: str = setting(
        DEFAULT_LEVEL,
        f"the rung that must hold, and all below it: {', '.join(RUNGS)}",
        parse_level,
        "LEVEL",
        scope=SWEEP,
    )
    publish_unverified: bool = switch(
        "also publish cells that fail verification, marked as such", scope=SWEEP
    )
    runtimes: tuple[str, ...] = many(
        "runtimes that verify besides ONNX Runtime CPU: qnn, openvino or none; default: all here",
        "NAME",
        parse_runtime,
        group="sweep",
        scope=Scope.HERE,
    )
    demand: tuple[str, ...] = many(
        "what a view requires of a version: VIEW=LEVEL, or VIEW=LEVEL@ep (run on its own provider)",
        "VIEW=LEVEL",
        parse_demand,
        default=("release=parity@ep",),
        group="promote",
        scope=Scope.HERE,
    )
    keep_local: bool = switch("keep the package folders of published cells in HOME/packages")
    trust_state: bool = switch(
        "continue with the state alone if the feed cannot be listed", scope=RUN
    )
    allow_remote_code: bool = switch(
        "run model code for catalog entries with remote_code = true", scope=SWEEP
    )
    allow_pickle: bool = switch(
        "load pickled weights for catalog entries with pickle = true", scope=SWEEP
    )
    needs: tuple[str, ...] = many(
        "words that a machine must offer to be given cells", "WORD", group="sweep", scope=SWEEP
    )
    has: tuple[str, ...] = many(
        "words that this machine offers besides what is found on it", "WORD", group="sweep"
    )
    sign_key: str | None = setting(None, "sign provenance with this private key (PEM)", str, "FILE")
    builder_id: str | None = setting(
        None, "URI of the builder in the provenance; default: this host", str, "URI"
    )
    jobs: int | None = setting(
        None, "worker slots of this machine; default: half the cores", parse_count, "N"
    )
    timeout: float = setting(
        1800.0, "time limit for one build stage", parse_duration, "TIME", scope=PLAN
    )
    publish_timeout: float = setting(
        1800.0, "time limit for one publish", parse_duration, "TIME", scope=PLAN
    )
    disk_budget: int | None = setting(
        None, "disk limit for the store and all builds on this machine", parse_size, "SIZE"
    )
    memory: int | None = setting(None, "memory ceiling of one engine host", parse_size, "SIZE")
    memory_budget: int | None = setting(
        None,
        "memory limit for all stages on this machine at once; default: nine tenths of it",
        parse_size,
        "SIZE",
    )
    tries: int = setting(
        4,
        "attempts at a publish or build stage that infrastructure fails",
        parse_count,
        "N",
        scope=RUN,
    )
    heartbeat: float = setting(
        30.0,
        "how often a slot reports; after twice this time without a report it loses its model",
        parse_duration,
        "TIME",
        scope=RUN,
    )
    bench_machine: bool = switch(
        "announce that this machine measures for sweeps with --bench", group="worker"
    )
    retention: float = setting(
        30 * 86400.0,
        "a worker removes stage results and logs that were not used for this time",
        parse_duration,
        "TIME",
        group="worker",
    )

    target: tuple[str, ...] = many("target labels")
    ep: tuple[str, ...] = many("execution providers", "EP")
    device: tuple[str, ...] = many("devices", "DEVICE")
    model: tuple[str, ...] = many("model ids")
    task: tuple[str, ...] = many("tasks")
    group: tuple[str, ...] = many("groups")
    model_type: tuple[str, ...] = many("model types")
    priority: tuple[str, ...] = many("priorities", "P", default=DEFAULT_PRIORITIES)
    only: tuple[str, ...] = many("cell ids to build")
    skip: tuple[str, ...] = many("cell ids to leave out")

    cwd: Path
    """Where relative paths start."""
    engine_pythons: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of engines and runtimes that live in a venv of their own."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Of the values that are not defaults."""

    def origin(self, name: str) -> str:
        """Where the value came from."""
        return self.origins.get(name, "default")

    def items(self) -> Iterator[tuple[str, Value]]:
        """Every setting, in the order of the fields."""
        for name in OPTIONS:
            yield name, Value(getattr(self, name), self.origin(name))

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
        return self._with(taken, dict.fromkeys(taken, origin))

    def narrowed(self, cell_id: str) -> Settings:
        """The same for one cell, whatever was selected."""
        taken: dict[str, tuple[str, ...]] = dict.fromkeys(SELECTION, ())
        taken |= {"priority": PRIORITIES, "only": (cell_id,)}
        if profile := parse(cell_id).profile:
            taken["compile"] = (profile,)
        origins = {**dict.fromkeys(SELECTION, "default"), "only": "the cell asked for"}
        return self._with(taken, origins)

    def _with(self, values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
        return replace(self, **values, origins={**self.origins, **origins})

    @property
    def protocol(self) -> Protocol:
        """How measurements are made."""
        return Protocol(self.warmup, self.iterations, self.sessions, self.threads)

    def path(self, place: str) -> Path:
        """A file or folder that a setting names, from the current folder of the run."""
        return self.cwd / Path(place).expanduser()

    def variables(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """What is not a default, as the environment of a child process that reads it back."""
        return {
            OPTIONS[name].variable: OPTIONS[name].text(value.value)
            for name, value in self.items()
            if value.origin != "default" and (names is None or name in names)
        }


def _options() -> Iterator[Option]:
    hints = get_type_hints(Settings)
    for one in fields(Settings):
        if one.metadata:
            yield Option(one.name, hints[one.name], one.default, **one.metadata)


OPTIONS: Mapping[str, Option] = {one.name: one for one in _options()}


def _names(group: str) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.group == group)


def _belonging(*scopes: Scope) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.scope in scopes)


SELECTION, PLACES = _names("selection"), _names("place")
OF_MEASURING = _names("measure")
OF_A_SWEEP = (*_names("sweep"), *OF_MEASURING)
RECORDED = _belonging(PLAN, SWEEP)
CHANGEABLE = _belonging(SWEEP, RUN)
"""What a flag may change of a sweep that a fleet has begun: its plan is kept."""
ORDERED = _belonging(PLAN, SWEEP, RUN)
"""What a sweep takes along to the machines of a fleet."""
FORM = ("feed", *(name for name in ORDERED if name not in PLACES))
"""What can be said of a sweep where it is ordered, on a server or for a schedule."""

"""Every setting there is: one table, from which flags, variables, file keys and docs are made.

A setting is read from, in rising order: its default, `modelmill.toml`, its `MODELMILL_*`
variable, its flag. A setting that is not in this table cannot be read at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from flows.cli.quantity import parse_duration, parse_size
from matrix.errors import UsageError
from matrix.nearest import hint
from matrix.verification import RUNGS
from workers.runtimes.kinds import KINDS
from workers.verify.ladder.verdict import DEFAULT_LEVEL, Demand


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"'{text}' is not a whole number above zero")
    return int(text)


def _switch(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False, "": False}
    try:
        return known[text.strip().lower()]
    except KeyError:
        raise UsageError(f"'{text}' is neither true nor false") from None


def _level(text: str) -> str:
    if text not in RUNGS:
        raise UsageError(f"'{text}' is no level of verification", hint=hint(text, RUNGS))
    return text


def _runtime(text: str) -> str:
    names = ("none", *(kind.name for kind in KINDS))
    if text not in names:
        raise UsageError(f"there is no runtime '{text}'", hint=hint(text, names))
    return text


def _demand(text: str) -> str:
    view, found, level = text.partition("=")
    if not view or not found:
        raise UsageError(f"'{text}' is not VIEW=LEVEL", hint="for example release=parity@ep")
    Demand.parse(level)
    return text


def _parts(text: str) -> Iterator[str]:
    """What commas separate; those in `{a,b}` belong to a glob."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        if sign == "," and depth <= 0:
            yield text[start:place]
            start = place + 1
        depth += (sign == "{") - (sign == "}")
    yield text[start:]


@dataclass(frozen=True, slots=True)
class Option:
    """A setting: `parse` turns the text of a flag or variable into its value."""

    name: str
    help: str
    default: Any = None
    parse: Callable[[str], Any] = str
    many: bool = False
    metavar: str = ""
    group: str = "sweep"

    @property
    def switch(self) -> bool:
        """Whether the flag stands alone."""
        return self.parse is _switch

    @property
    def flag(self) -> str:
        """As typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """As exported."""
        return "MODELMILL_" + self.name.upper()

    def holds(self, value: object) -> bool:
        """Whether a recorded value can be one of this setting."""
        if self.many:
            return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        if self.switch or isinstance(value, bool):
            return self.switch and isinstance(value, bool)
        if self.parse in {str, _level, _runtime, _demand}:
            return isinstance(value, str)
        return isinstance(value, int | float)

    def read(self, text: str) -> Any:
        """The value of a flag or variable; lists are separated by commas outside braces."""
        if not self.many:
            return self.parse(text)
        return tuple(self.parse(part.strip()) for part in _parts(text) if part.strip())


def _many(name: str, help_text: str, group: str = "selection", metavar: str = "GLOB") -> Option:
    return Option(name, help_text, (), many=True, group=group, metavar=metavar)


_TABLE = (
    # where things are
    Option(
        "home", "folder for state, store, logs and the default feed", ".modelmill", group="place"
    ),
    Option(
        "state", "state database: a file or postgresql://...; default HOME/state.db", group="place"
    ),
    Option("store", "content store folder; default HOME/store", group="place"),
    Option(
        "feed",
        "where to publish: a folder, dir:FOLDER or azure:URL; default HOME/feed",
        group="place",
    ),
    Option("targets_file", "a TOML file with further targets", group="place", metavar="FILE"),
    Option(
        "summary",
        "folder for summary.json, summary.md and junit.xml of the sweep",
        group="place",
        metavar="FOLDER",
    ),
    Option(
        "summary_url",
        "where browsers find the summary folder of a fleet's parent; links in Prefect lead there",
        group="place",
        metavar="URL",
    ),
    # what to do
    Option("stamp", "name of the batch; default today's date", metavar="STAMP"),
    Option("package", "package name template", "modelmill-{model}", metavar="TEMPLATE"),
    Option("engine", "the engine that builds", "optimum", metavar="NAME"),
    Option(
        "skip_bad_entries",
        "leave out catalog entries that have problems instead of refusing the catalog",
        False,
        _switch,
    ),
    Option("precision", "precision for every cell that may have it", (), many=True, metavar="P"),
    Option("opset", "ONNX opset for every cell", None, _count, metavar="N"),
    Option("self_contained", "put the export into every package", False, _switch),
    Option(
        "if_changed", "publish no cell that equals its newest published version", False, _switch
    ),
    Option("no_publish", "build and verify only", False, _switch),
    Option(
        "verify",
        f"the rung that must hold, with all below it: {', '.join(RUNGS)}",
        DEFAULT_LEVEL,
        _level,
        metavar="LEVEL",
    ),
    Option(
        "publish_unverified",
        "publish what fails verification too, with that mark",
        False,
        _switch,
    ),
    Option(
        "runtimes",
        "what verifies besides ONNX Runtime CPU: qnn, openvino or none; default: what is here",
        (),
        _runtime,
        many=True,
        metavar="NAME",
    ),
    Option(
        "demand",
        "what a view asks of a version, VIEW=LEVEL or VIEW=LEVEL@ep (run on its own provider)",
        ("release=parity@ep",),
        _demand,
        many=True,
        group="promote",
        metavar="VIEW=LEVEL",
    ),
    Option(
        "keep_local", "keep the package folders of published cells in HOME/packages", False, _switch
    ),
    Option(
        "trust_state", "go on with the state alone if the feed cannot be listed", False, _switch
    ),
    Option(
        "allow_remote_code",
        "run model code for catalog entries with remote_code = true",
        False,
        _switch,
    ),
    Option(
        "allow_pickle",
        "load pickled weights for catalog entries with pickle = true",
        False,
        _switch,
    ),
    _many("needs", "words that a worker must announce to be given models", "sweep", "WORD"),
    Option("sign_key", "sign provenance with this private key (PEM)", metavar="FILE"),
    Option(
        "builder_id", "who builds, as a URI in the provenance; default: the host", metavar="URI"
    ),
    # how much
    Option(
        "jobs", "worker slots of this machine; default: half the cores", None, _count, metavar="N"
    ),
    Option("timeout", "limit for one build stage", 1800.0, parse_duration, metavar="TIME"),
    Option("publish_timeout", "limit for one publish", 1800.0, parse_duration, metavar="TIME"),
    Option(
        "disk_budget",
        "what the store and the work folders may take",
        None,
        parse_size,
        metavar="SIZE",
    ),
    Option("memory", "memory ceiling of one engine host", None, parse_size, metavar="SIZE"),
    Option(
        "memory_budget",
        "what stages that run at once may take together; default: nine tenths of the machine",
        None,
        parse_size,
        metavar="SIZE",
    ),
    Option(
        "tries",
        "tries of a publish or build stage that infrastructure broke",
        4,
        _count,
        metavar="N",
    ),
    Option(
        "heartbeat",
        "a slot that is silent for two of these loses its model to another",
        30.0,
        parse_duration,
        metavar="TIME",
    ),
    # of a worker of a fleet
    Option(
        "retention",
        "a worker removes stage results and logs that were not used for so long",
        30 * 86400.0,
        parse_duration,
        group="worker",
        metavar="TIME",
    ),
    # which cells
    _many("target", "target labels"),
    _many("ep", "execution providers", metavar="EP"),
    _many("device", "devices", metavar="DEVICE"),
    _many("model", "model ids"),
    _many("task", "tasks"),
    _many("group", "groups"),
    _many("model_type", "model types"),
    Option("priority", "priorities", ("P0", "P1", "P2"), many=True, group="selection", metavar="P"),
    _many("only", "cell ids to build"),
    _many("skip", "cell ids to leave out"),
)

OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _TABLE})

SELECTION = tuple(option.name for option in _TABLE if option.group == "selection")
PLACES = tuple(option.name for option in _TABLE if option.group == "place")
SWEEP = tuple(option.name for option in _TABLE if option.group == "sweep")

"""Writes docs/reference/ from the code: `python docs/generate.py`; a test fails where it is stale.

Commands come from the parser, settings from their table, words from theirs. The keys of a catalog
are those that the reader asks for when it reads `samples/everything.toml`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from flows.cli.arguments import HelpAll
from flows.cli.main import build_parser
from flows.output.meanings import CAUSES, EXITS, LOOKS
from flows.output.quantity import show_duration
from flows.settings.options import Option
from flows.settings.settings import OPTIONS
from matrix.build_options import ALL
from matrix.catalog import load_catalog
from matrix.hypotheses import Hypothesis
from matrix.model import Target
from matrix.policy import default_of
from matrix.profiles import load_profiles
from matrix.reader import Entry
from matrix.space import LEVELS, read_space, shipped
from matrix.targets import load_targets
from matrix.vocabulary import CANDIDATES, SESSION_OPTIONS
from workers.measure.trace import result

DOCS = Path(__file__).resolve().parent
REFERENCE = DOCS / "reference"
EVERYTHING = DOCS / "samples" / "everything.toml"
MADE = "<!-- made by docs/generate.py; change the code instead -->\n\n"

TABLES = {
    "": "At the top",
    "[[model]]": "A model: `[[model]]`",
    "[model.random]": "Seeded random weights: `[model.random]`",
    "[model.target.TARGET]": "One target, or a glob over targets: `[model.target.TARGET]`",
    "[model.build]": "How an engine builds: `[model.build]`, also of a target",
    "[model.dataset]": "Samples of one's own: `[model.dataset]`, or `[dataset.NAME]` for the models"
    " of a group or task",
    "[model.samples]": "Synthetic samples that are enough: `[model.samples]`",
    "[model.verify]": "Verification: `[model.verify]`",
    "[model.verify.parity.PRECISION]": "Thresholds: `[model.verify.parity.PRECISION]`",
    "[model.verify.task]": "A task metric: `[model.verify.task]`",
    "[[ep]]": "An execution provider: `[[ep]]`",
    "[[target]]": "A target: `[[target]]`",
}

KEYS = {
    "defaults": "a table with keys of `[[model]]` that every model inherits",
    "model": "the models",
    "ep": "the execution provider: its name, provider name or an alias",
    "target": "overrides for single targets",
    "id": "Hugging Face id or a name; part of cell ids",
    "task": "what the model is exported for, e.g. `image-classification`",
    "hub": "Hub id if it differs from `id`",
    "folder": "local folder with the model, relative to the catalog; links in it are refused,"
    " except those of the Hub's cache",
    "random": "instead of a Hub id or folder: an architecture with seeded random weights",
    "onnx": "a ready ONNX file instead of an export; its path is relative to the catalog or, with"
    " `hub` or `folder`, to that repository or folder",
    "file": "a model file of scikit-learn (`.skops`) or XGBoost (`.json`, `.ubj`) for the engine"
    " `tabular`, found like `onnx`",
    "revision": "branch, tag or commit on the Hub; resolved to a commit before anything is built",
    "model_type": "the Transformers model type, for coverage, filters and the engine",
    "group": "any name, for `--group`",
    "priority": "P0 to P3; default P2",
    "precision": "a precision, or a list of them, each of which is a cell",
    "opset": "ONNX opset",
    "shapes": "fixed dimensions by name",
    "timeout": "seconds for one build stage",
    "publish_timeout": "seconds for one publish",
    "skip": "the reason why these cells are left out",
    "remote_code": "true: needs code from the model's repository; a sweep also needs"
    " `--allow-remote-code`",
    "pickle": "true: its weights are pickles; a sweep also needs `--allow-pickle`",
    "new_head": "why the head may be random if the checkpoint has none, e.g. `trained later`;"
    " without a reason such an export fails",
    "dataset": "samples of the model's inputs, in place of those of its own tokenizer or processor",
    "path": "a file of tensors or texts (`.npz`, `.jsonl`, `.csv`, `.parquet`), or a folder of"
    " images (`.png`, `.jpg`, `.bmp`, `.webp`) or sounds (`.wav`), relative to the catalog",
    "columns": "which columns hold the texts: a table with `text`, `text_pair`, `question`,"
    " `context`",
    "mean": "images for a ready ONNX file: what is subtracted from each channel, whose values go"
    " from 0 to 1; default 0",
    "std": "images for a ready ONNX file: what each channel is then divided by; default 1",
    "channels": "images for a ready ONNX file: `rgb` (default) or `bgr`",
    "rate": "sounds for a ready ONNX file: samples a second; default 16000",
    "kind": "`synthetic`",
    "recipes": "folder with authored build recipes, for engines that take them",
    "context_group": "name of a group of entries that are compiled into one context",
    "needs": "words that a machine must offer to get the cells, e.g. `os:windows`",
    "tags": "any words, which are recorded with the model",
    "verify": "thresholds, waivers and metrics of verification",
    "build": "options of the engine",
    **{name: option.help for name, option in ALL.items()},
    "architecture": "the Transformers model type to create",
    "seed": "the seed of the weights",
    "config": "values of the Transformers configuration",
    "parity": "thresholds by precision",
    "waive": "rungs that may fail, each with its reason",
    "snr": "the signal-to-noise ratio that every output must reach, in decibels",
    "agreement": "the share of decisions that must agree with those of the export",
    "max_abs": "the largest difference that a value may have",
    "reason": "why the threshold differs",
    "metric": "`accuracy` or `agreement`",
    "within": "how much worse than the original it may be",
    "name": "the name of the execution provider",
    "provider": "ONNX Runtime's name for it",
    "devices": "the devices that it runs on; the first is its default",
    "aliases": "other names that are accepted",
    "internal_quantization": "true: it quantizes by itself and never gets a QDQ graph",
    "label": "the target's name, in cell ids and versions",
    "device": "npu, gpu or cpu",
    "auto": "the precision that `auto` means here",
    "language": "the default for models that generate text, e.g. `w4`",
    "weight_form": "the operator that reads 4-bit weights: `DequantizeLinear` (plain ONNX, from "
    "opset 21) or ONNX Runtime's `MatMulNBits` (any opset)",
    "accuracy_level": "what `MatMulNBits` may round its input to before it multiplies: 4 is int8, "
    "0 (default) leaves it to the provider",
    "rewrites": "what is rewritten in quantized graphs because of the provider's limits: `biases`, "
    "`empties`, `epsilons`, `neutral`, `pools`, `transposes` "
    "([what they are](../quantization.md#what-the-engine-rewrites-before-it-quantizes))",
    "qdq": "false: a QDQ graph is known to fail",
    "static_shapes": "true: dimensions must be fixed",
    "optimization": "graph optimization level: disabled, basic, extended",
    "quantizer": "the QDQ form, as the engine names it",
    "blocked_passes": "optimizer passes that do not run",
    "activations": "the bits of quantized activations that it takes; default `[8, 16]`, `[]`: only "
    "weights may be quantized",
    "matrix": "the matrix that it belongs to beside the targets of the default one (`--matrix`)",
    "blocked_ops": "operators that no pass may add or quantize",
    "why": "the reasons for this row; notices show them",
}

_CHANNELS = {
    "channels": "the operators whose weights may have a scale for each channel: `Conv`, "
    "`ConvTranspose`, `Gemm`, `MatMul` (default: all)"
}
OF_TABLES = {
    "[[ep]]": _CHANNELS,
    "": {
        "dataset": "datasets by the group or task of the models that they are for; the dataset of a"
        " model wins, then that of its group"
    },
    "[model.dataset]": {"samples": "how many samples are taken at most; default all that are used"},
    "[model.samples]": {"reason": "why they are enough; status, report and promotion show it"},
    "[[model]]": {
        "samples": "why synthetic samples are enough, for a model without a tokenizer or processor"
    },
    "[model.verify]": {"task": "a task metric (below)"},
    "[model.verify.task]": {"dataset": "the samples of the metric (`.npz` or `.jsonl`)"},
    "[[target]]": _CHANNELS
    | {
        "precision": "the default precision of the target, or `auto`",
        "opset": "the opsets that the target supports: `[lowest, highest]`",
    },
}
"""Meanings of keys that mean something else in one table."""


def pages() -> dict[str, str]:
    """Every page by file name."""
    return {
        "commands.md": "".join(_commands()),
        "settings.md": "".join(_settings()),
        "words.md": "".join(_words()),
        "catalog.md": "".join(_catalog()),
        "hypotheses.md": "".join(_hypotheses()),
        "trace.schema.json": trace_schema(),
    }


def _table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(values: Iterable[str]) -> str:
        return f"| {' | '.join(value.replace('|', chr(92) + '|') for value in values)} |\n"

    heads = list(names)
    return line(heads) + line("---" for _ in heads) + "".join(map(line, rows)) + "\n"


def _commands() -> Iterator[str]:
    every = list(parsers(build_parser()))
    common = common_flags(every)
    yield f"# Commands\n\n{MADE}"
    yield "Settings are flags that can also stand in a file or a variable: [](settings.md) says\n"
    yield "what each of them does. These flags are the same in many commands:\n\n"
    yield _table(("flag", "what it does"), common)
    for name, parser in every:
        yield f"## modelmill {name}\n\n{parser.description or parser.format_usage()}\n\n"
        own, taken = own_arguments(parser)
        rows = [row for row in map(_row, own) if row not in common]
        usage = parser._get_formatter()
        usage.add_usage(None, [one for one in own if _row(one) in rows], [], "")
        shared = ", ".join(row[0] for row in map(_row, own) if row in common)
        line = " ".join([*usage.format_help().split(), *(["[settings]"] if taken else [])])
        yield f"```text\n{line}\n```\n\n"
        if rows:
            yield _table(("argument", "what it does"), rows)
        if shared:
            yield f"Common: {shared}.\n\n"
        if taken:
            yield f"Settings: {_settings_of(taken)}.\n\n"


def _row(action: argparse.Action) -> tuple[str, str]:
    shown = ", ".join(f"`{flag}`" for flag in action.option_strings)
    help_text = (action.help or "").replace("%%", "%")
    return shown or f"`{action.metavar or action.dest}`", help_text


def common_flags(every: Iterable[tuple[str, argparse.ArgumentParser]]) -> list[tuple[str, str]]:
    """Flags that mean the same in at least six commands, with what they do."""
    flags = Counter(
        _row(action)
        for _name, parser in every
        for action in own_arguments(parser)[0]
        if action.option_strings
    )
    return [row for row, count in flags.items() if count >= 6]


def own_arguments(parser: argparse.ArgumentParser) -> tuple[list[argparse.Action], set[str]]:
    """The arguments of a command that are no settings, and the names of the settings it takes."""
    own, taken = [], set[str]()
    for action in parser._actions:
        option = OPTIONS.get(action.dest)
        # A flag of a command's own may have the name of a setting.
        if option and _is_flag_of(option, action):
            taken.add(option.name)
        elif not isinstance(action, argparse._SubParsersAction | argparse._HelpAction | HelpAll):
            own.append(action)
    return own, taken


def _settings_of(taken: set[str]) -> str:
    """Whole groups by their names, then single flags."""
    whole, single = [], []
    for group in dict.fromkeys(option.group for option in OPTIONS.values()):
        mine = [option for option in OPTIONS.values() if option.group == group]
        if taken.issuperset(option.name for option in mine):
            whole.append(f"all of [{group}](settings.md#{group.lower().replace(' ', '-')})")
        else:
            single += [f"`{option.flag}`" for option in mine if option.name in taken]
    return ", ".join([*whole, *single])


def _is_flag_of(option: Option, action: argparse.Action) -> bool:
    texts = (option.help, f"the opposite of {option.flag}")
    return bool(action.option_strings) and (action.help or "").startswith(texts)


def parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command, and every verb of a command, by the words one types."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, inner in action.choices.items():
                inner.description = inner.description or helps.get(name)
                verbs = list(parsers(inner))
                yield from ((f"{name} {verb}", one) for verb, one in verbs)
                if not verbs:
                    yield name, inner


def _settings() -> Iterator[str]:
    yield f"# Settings\n\n{MADE}"
    yield (
        "A flag overrides the variable, the variable overrides `modelmill.toml` (or the file that\n"
        "`--config` or `MODELMILL_CONFIG` names), and the file overrides the default.\n"
        "`modelmill plan` shows the value in force and where it came from. The items of a list\n"
        "are separated by commas; a flag can also be repeated.\n\n"
    )
    for group in dict.fromkeys(option.group for option in OPTIONS.values()):
        yield f"## {group.capitalize()}\n\n"
        mine = [option for option in OPTIONS.values() if option.group == group]
        yield _table(
            ("in modelmill.toml", "flag", "variable", "default", "meaning"),
            [
                (
                    f"`{one.name}`",
                    f"`{one.flag}`",
                    f"`{one.variable}`",
                    _default(one),
                    one.help,
                )
                for one in mine
            ],
        )


def _default(option: Option) -> str:
    if option.default in (None, ()):
        return ""
    if isinstance(option.default, tuple):
        return "`" + ",".join(option.default) + "`"
    if isinstance(option.default, float):
        return f"`{show_duration(option.default)}`"
    return f"`{str(option.default).lower() if option.switch else option.default}`"


def _words() -> Iterator[str]:
    yield f"# Statuses, failure classes, exit codes\n\n{MADE}## Statuses of a cell\n\n"
    yield _table(
        ("", "status", "meaning"),
        [(look.glyph, f"`{status}`", look.meaning) for status, look in LOOKS.items()],
    )
    yield "## Failure classes\n\n"
    yield "Only NETWORK and DISK are tried again without being asked.\n\n"
    yield _table(
        ("class", "meaning", "next step"),
        [(f"`{kind}`", cause.meaning, cause.next_step) for kind, cause in CAUSES.items()],
    )
    yield "## Exit codes\n\n"
    rows = [(f"`{int(code)}`", code.name, text) for code, text in EXITS.items()]
    yield _table(("code", "name", "meaning"), rows)


def _catalog() -> Iterator[str]:
    yield f"# Catalog and targets\n\n{MADE}"
    yield "`modelmill plan CATALOG` checks a catalog without building anything. It reports all\n"
    yield "problems of a file together, each with its entry and the nearest valid name. This\n"
    yield "sample has every table that a catalog may have:\n\n"
    yield "```{literalinclude} ../samples/everything.toml\n:language: toml\n```\n\n"
    for table, keys in known_keys().items():
        yield f"## {TABLES[table]}\n\n"
        meanings = KEYS | OF_TABLES.get(table, {})
        yield _table(("key", "meaning"), [(f"`{key}`", meanings[key]) for key in keys])
    yield "## The default targets\n\n"
    known = load_targets()
    yield _targets(known)
    yield "## The targets that the matrix 2026 adds\n\nChosen by `--matrix 2026`, or by name.\n\n"
    yield _targets(row for row in known.every if row not in known.rows)

    yield "## Device profiles\n\nWhat `compile` can aim at, and what of it has been tried.\n\n"
    profiles = load_profiles(known)
    yield _table(
        ("label", "target", "runtime", "device", "tried"),
        [
            (f"`{one.label}`", f"`{one.target}`", one.runtime, one.why, profiles.tried[one.label])
            for one in profiles
        ],
    )


def _targets(rows: Iterable[Target]) -> str:
    names = ("label", "provider", "device", "precision", "why")
    return _table(
        names,
        [(f"`{one.label}`", one.provider, one.device, default_of(one), one.why) for one in rows],
    )


def _hypotheses() -> Iterator[str]:
    yield f"# Hypotheses\n\n{MADE}What [a tuning](../tune.md) tries, by the files that come with"
    yield " modelmill. An empty cell: the engine cannot try it.\n\n"
    space = read_space(shipped())
    for path in shipped():
        yield f"## {path.stem}\n\n"
        yield _table(
            ("id", "targets", "what", "optimum", "winml", "only if"),
            [_hypothesis(one) for one in space.values() if one.file == path.name],
        )
    yield "## Candidates\n\nPlaces for passes that the guard `candidates` can name.\n\n"
    yield _table(("name", "what is found"), [(f"`{one}`", CANDIDATES[one]) for one in CANDIDATES])
    yield "## Options of sessions\n\nWhat `runtime` takes: `level` "
    yield f"({', '.join(f'`{one}`' for one in LEVELS)}) and options of the provider.\n\n"
    yield _table(
        ("provider", "option", "values"),
        [
            (provider, f"`{name}`", ", ".join(f"`{one}`" for one in values) or "a number")
            for provider, options in SESSION_OPTIONS.items()
            for name, values in options.items()
        ],
    )


def _hypothesis(one: Hypothesis) -> tuple[str, ...]:
    guards = one.guards
    only = [f"{name} in the graph" for name in guards.needs]
    only += [f"no {name}" for name in guards.not_with]
    only += [" or ".join(f"`{name}`" for name in guards.candidates)] if guards.candidates else []
    only += [f"{low:.0%} to {high:.0%} {name}" for name, (low, high) in guards.share.items()]
    tried = [one.for_engine(name) for name in ("optimum", "winml")]
    told = [", ".join(f"`{text}`" for text in each.settings) for each in tried]
    return (
        f"`{one.id}`",
        ", ".join(one.targets),
        one.title,
        *("" if each.missing else text for each, text in zip(tried, told, strict=True)),
        ", ".join(only),
    )


def known_keys() -> dict[str, list[str]]:
    """The keys that the readers ask for, by table, from reading a file that has every table."""
    found: dict[str, list[str]] = {}
    real = Entry.close

    def close(entry: Entry) -> None:
        name = _table_of(entry.where)
        if name is not None:
            found.setdefault(name, list(dict.fromkeys(entry.known)))
        real(entry)

    with patch.object(Entry, "close", close):
        targets = load_targets()
        load_catalog(str(EVERYTHING), base=DOCS, targets=targets)
    return {name: found[name] for name in TABLES if name in found}


def _table_of(where: str) -> str | None:
    parts = where.split(": ")
    if len(parts) == 1:
        return "" if parts[0] == EVERYTHING.name else None
    kind = parts[1].split()[0]
    if kind in {"ep", "target"}:
        return f"[[{kind}]]"
    if kind != "model":
        return None
    names = [
        re.sub(r"^target .*", "target.TARGET", re.sub(r"^parity\..*", "parity.PRECISION", part))
        for part in parts[2:]
    ]
    return f"[model.{'.'.join(names)}]" if names else "[[model]]"


def trace_schema() -> str:
    """The JSON schema of a trace, with the words beside its fields."""
    found: dict[str, Any] = msgspec.json.schema(result.Trace)
    for name, field, text in _field_words():
        kind = found["$defs"].get(name, {})
        if field in kind.get("properties", {}):
            kind["properties"][field]["description"] = text
    trace = found["$defs"]["Trace"]
    trace["required"] = list(result.Trace.__dataclass_fields__)
    trace["allOf"] = [
        {
            "if": {"properties": {"status": {"const": "basic_fallback"}}},
            "then": {"properties": {"fallback_reason": {"type": "string"}}},
            "else": {"properties": {"fallback_reason": {"type": "null"}}},
        }
    ]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A trace of modelmill",
        "description": "Made by docs/generate.py. Keys are only ever added.",
    }
    return json.dumps({**head, **found}, indent=1) + "\n"


def _field_words() -> Iterator[tuple[str, str, str]]:
    """Class, field and the text below the field."""
    tree = ast.parse(Path(result.__file__).read_text("utf-8"))
    for kind in tree.body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for field, text in zip(kind.body, kind.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                yield kind.name, field.target.id, str(text.value.value)


def main() -> None:
    """Write what differs."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = REFERENCE / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8", newline="\n")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()

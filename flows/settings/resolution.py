"""Where the effective settings come from: defaults, the file, variables, flags."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.features import feature
from flows.settings.options import Option
from flows.settings.settings import OPTIONS, Settings
from machine.files import read_file
from matrix.errors import UsageError
from matrix.nearest import hint
from matrix.reader import MAX_BYTES

CONFIG_NAME = "modelmill.toml"
ENVIRONMENTS = "engines"
"""The folder of the home in which engines have environments of their own, by their names."""
_BESIDE = ".venv-"
"""How the name of an environment begins that an earlier version made in the current folder."""
_PREFIX, _PYTHON = "MODELMILL_", "_PYTHON"
_KNOWN = frozenset(
    {
        *(option.variable for option in OPTIONS.values()),
        *(f"{_PREFIX}{name}" for name in ("CONFIG", "MACHINE", "SIGN_PASSWORD")),
        *(f"{_PREFIX}CACHE_{name}" for name in ("USER", "PASSWORD", "TOKEN")),
        *(f"{_PREFIX}WORKER_{name}" for name in ("FOLDER", "WORDS", "CWD")),
    }
)
_NEAR = 0.85


def misspelt(environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that look like misspelt ones of ours, each with the nearest name."""
    strange = [
        name
        for name in sorted(environ)
        if name.upper().startswith(_PREFIX) and name not in _KNOWN and not name.endswith(_PYTHON)
    ]
    if not strange:
        return
    variables = feature("variables of Azure")
    known = [*_KNOWN, *variables]
    for name in strange:
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=_NEAR)
        if near and name not in variables:
            yield f"variable {name} sets nothing (did you mean {near[0]}?)"


def resolve(
    flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, config: Path | None = None
) -> Settings:
    """Defaults, then the file, then variables, then flags."""
    pythons, values, origins = dict[str, str](), dict[str, Any](), dict[str, str]()
    file = _config_file(config, environ, cwd)
    if file is not None:
        values = _from_file(file, pythons)
        origins = dict.fromkeys(values, file.name)
    for name, option in OPTIONS.items():
        if environ.get(option.variable):
            values[name] = _parsed(option.read, environ[option.variable], option.variable)
            origins[name] = f"variable {option.variable}"
        if flags.get(name) is not None and flags[name] != ():
            values[name], origins[name] = flags[name], f"flag {option.flag}"
    # `MODELMILL_WINML_PYTHON` says which interpreter runs the engine `winml`.
    for name, value in environ.items():
        if name.startswith(_PREFIX) and name.endswith(_PYTHON) and value:
            pythons[name.removeprefix(_PREFIX).removesuffix(_PYTHON).lower()] = value
    found = dict(_environments(cwd, Path(values.get("home") or OPTIONS["home"].default)))
    return Settings(cwd=cwd, engine_pythons=found | pythons, origins=origins, **values)


def _environments(cwd: Path, home: Path) -> Iterator[tuple[str, str]]:
    """The interpreters of environments that `engine install` made."""
    beside = (Path(folder.name) for folder in cwd.glob(f"{_BESIDE}*"))
    own = (home / ENVIRONMENTS / folder.name for folder in (cwd / home / ENVIRONMENTS).glob("*"))
    for folder in (*beside, *own):
        for python in ("bin/python", "Scripts/python.exe"):
            if (cwd / folder / python).exists():
                yield folder.name.removeprefix(_BESIDE), str(folder / python)


def _config_file(config: Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    named = config or environ.get("MODELMILL_CONFIG")
    if not named:
        default = cwd / CONFIG_NAME
        return default if default.exists() else None
    if not (cwd / named).exists():
        raise UsageError(f"no settings file at {named}")
    return cwd / named


def _from_file(file: Path, pythons: dict[str, str]) -> dict[str, Any]:
    if file.is_dir():
        text = f"{file} is a folder, not a settings file"
        raise UsageError(text, hint="rename it, or name a file with --config")
    try:
        document = tomllib.loads(read_file(file, MAX_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file.name} cannot be read: {error}") from None
    for kind in ("engine", "runtime"):
        if isinstance(document.get(kind), dict):
            for name, table in document.pop(kind).items():
                pythons[name] = _python(table, f"{file.name}: [{kind}.{name}]")
    for key in document:
        if key not in OPTIONS:
            raise UsageError(f"{file.name}: unknown setting '{key}'", hint=hint(key, OPTIONS))
    return {key: _from_toml(file, OPTIONS[key], value) for key, value in document.items()}


def _python(table: object, where: str) -> str:
    if not isinstance(table, dict) or set(table) - {"python"}:
        raise UsageError(f"{where} knows only the key 'python'")
    if not isinstance(table.get("python"), str):
        raise UsageError(f"{where}: python is not a path in quotes")
    return str(table["python"])


def _from_toml(file: Path, option: Option, value: Any) -> Any:
    where = f"{file.name}: {option.name}"
    if option.many:
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str) for part in listed):
            raise UsageError(f"{where} is not text or a list of texts")
        return tuple(_parsed(option.parse, part, where) for part in listed)
    if option.switch:
        if not isinstance(value, bool):
            raise UsageError(f"{where} is neither true nor false")
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{where} has the wrong type ({type(value).__name__})")
    if option.parse is str and not isinstance(value, str):
        raise UsageError(f"{where} is not text", hint="put it in quotes")
    return _parsed(option.parse, str(value), where)


def _parsed(parse: Callable[[str], Any], text: str, where: str) -> Any:
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from None

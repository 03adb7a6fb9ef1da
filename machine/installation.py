"""How modelmill is installed, and the command that adds what is missing.

The public package index does not have modelmill. A command names the place that this installation
came from: the clone, the folder, the wheel or the address that the installer has noted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from machine.shell import shell_word

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "azure": ("azure", "msrest", "requests"),
    "sweep": ("alembic", "fastapi", "orjson", "prefect", "pydantic", "sqlalchemy", "sqlmodel"),
    "build": ("numpy", "onnx", "onnxruntime", "optimum", "torch", "transformers"),
    "postgres": ("psycopg",),
    "sign": ("securesystemslib",),
    "tabular": ("onnxmltools", "skl2onnx", "sklearn", "skops", "xgboost"),
    "vision": ("PIL", "scipy", "timm"),
}
"""What our own process may import of each extra."""
_PART_OF = {
    "azure": ("sweep", "build", "postgres", "tabular", "dynamo", "vision"),
    "sweep": ("build", "postgres", "tabular", "dynamo", "vision"),
    "build": ("tabular", "dynamo", "vision"),
}
"""The extras that contain an extra."""
_AGAIN = ["--force-reinstall", "--no-deps"]
_ROOT = Path(__file__).resolve().parents[1]


def importable(name: str) -> bool:
    """Whether a package can be imported, without doing so."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that it would lie in
        return False


def incomplete(extras: Iterable[str]) -> list[str]:
    """Those of these extras that lack a package."""
    return [one for one in extras if not all(map(importable, EXTRAS.get(one, ())))]


def install(*extras: str, python: Path | None = None, again: bool = False) -> str:
    """The command that adds extras to this installation, or puts modelmill with them into the
    environment of another interpreter. `again`: it writes all files of modelmill again."""
    words = _installer(python)
    if again:
        words += ["--reinstall"] if words[:2] == ["uv", "tool"] else _AGAIN
    # uv installs a tool with what it is told, and with nothing that it had before.
    wanted = {*extras, *(_receipt_extras() if words[:2] == ["uv", "tool"] else ())}
    names = ",".join(sorted(one for one in wanted if wanted.isdisjoint(_PART_OF.get(one, ()))))
    origin, editable = _origin()
    place = Path(origin)
    pins = (place if place.is_dir() else place.parent) / "constraints.txt"
    words += ["-c", str(pins)] if pins.is_absolute() and pins.is_file() else []
    words += ["-e"] if editable else []
    named = f"[{names}]" if names else ""
    words.append(f"modelmill{named} @ {origin}" if "://" in origin else f"{origin}{named}")
    return " ".join(map(shell_word, words))


def packages(verb: Literal["install", "uninstall"], *names: str) -> str:
    """The command that adds packages of the public index to this environment, or removes them."""
    words = _installer(None)
    if words[:2] == ["uv", "tool"]:
        words = ["uv", "pip", "install", "--python", sys.prefix]
    words[words.index("install")] = verb
    return " ".join(map(shell_word, [*words, *names]))


def _installer(python: Path | None) -> list[str]:
    """How packages get into an environment: the words before their names."""
    prefix = python.parent.parent if python else Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return ["pipx", "runpip", prefix.name, "install"]
    if (prefix / "uv-receipt.toml").is_file():
        return ["uv", "tool", "install"]
    made = prefix / "pyvenv.cfg"
    if made.is_file() and "\nuv = " in made.read_text("utf-8", "replace"):
        return ["uv", "pip", "install", "--python", str(prefix)]
    from shutil import which

    own = python or Path(sys.executable)
    pip = which("pip")
    near = pip is not None and Path(pip).parent == own.parent
    return ["pip", "install"] if near else [str(own), "-m", "pip", "install"]


def _origin() -> tuple[str, bool]:
    """Where this installation came from, and whether it runs from there."""
    if (_ROOT / "pyproject.toml").is_file():
        return str(_ROOT), True
    for info in _ROOT.glob("modelmill-*.dist-info"):
        noted = info / "direct_url.json"
        if not noted.is_file():  # it came from an index of its own, by its name and version
            continue
        told: Mapping[str, Any] = json.loads(noted.read_text("utf-8"))
        url, vcs = str(told["url"]), told.get("vcs_info")
        if vcs:
            return f"{vcs['vcs']}+{url}@{vcs['commit_id']}", False
        from urllib.parse import urlsplit
        from urllib.request import url2pathname  # it costs more than a help text

        parts = urlsplit(url)
        return (url2pathname(parts.path) if parts.scheme == "file" else url), False
    return "modelmill", False


def _receipt_extras() -> list[str]:
    """The extras that a tool of uv was installed with."""
    import tomllib

    receipt = tomllib.loads((Path(sys.prefix) / "uv-receipt.toml").read_text("utf-8"))
    wanted = receipt.get("tool", {}).get("requirements", [])
    return [str(one) for row in wanted if row.get("name") == "modelmill"
            for one in row.get("extras", [])]  # fmt: skip

"""Packages of the indexes, fetched with pip or npm into a cache folder and checked by digest.

No file of theirs and no address is in the tree: `packages.toml` has names, versions, licences and
the digests of the files that are used.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from machine.files import hash_file

LIST = Path(__file__).with_name("packages.toml")
CACHE = "MODELMILL_BENCH_CACHE"


class Missing(Exception):
    """Something that the bench needs cannot be had here."""


@dataclass(frozen=True, slots=True)
class Package:
    """An entry of the list."""

    name: str
    version: str
    licence: str
    index: str = "pypi"
    files: Mapping[str, str] = field(default_factory=dict)
    """Digests (SHA-256) by path inside the package."""


def packages() -> dict[str, Package]:
    """The list, by name."""
    entries = tomllib.loads(LIST.read_text("utf-8"))["package"]
    return {entry["name"]: Package(**entry) for entry in entries}


def cache_folder() -> Path:
    """Where packages are kept between runs."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "modelmill-bench").absolute()


@cache
def fetched(name: str) -> Path:
    """The folder of an unpacked package. Raises `Missing`."""
    package = packages()[name]
    folder = cache_folder() / f"{name.replace('/', '-')}-{package.version}"
    if not folder.is_dir():
        _fetch(package, folder)
    for path, digest in package.files.items():
        if not (file := folder / path).is_file() or hash_file(file)[0] != digest:
            raise Missing(f"{file} is not the file of {name} {package.version}; delete its folder")
    return folder


def _fetch(package: Package, folder: Path) -> None:
    begun = folder.with_name(folder.name + ".part")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    command = _npm(package) if package.index == "npm" else _pip(package)
    done = subprocess.run(command, cwd=begun, capture_output=True, text=True, check=False)
    archives = list(begun.iterdir())
    if done.returncode or len(archives) != 1:
        reason = (done.stderr.strip().splitlines() or ["no file"])[-1]
        raise Missing(f"{package.name} {package.version} cannot be had: {reason}")
    [archive] = archives
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(begun)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(begun, filter="data")
    archive.unlink()
    begun.replace(folder)


def _pip(package: Package) -> list[str]:
    own = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [_tool("pip")]
    wanted = f"{package.name}=={package.version}"
    return [*own, "download", "-q", "--no-deps", "--only-binary=:all:", wanted]


def _npm(package: Package) -> list[str]:
    return [_tool("npm"), "pack", "--silent", f"{package.name}@{package.version}"]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found

"""What the files of `deploy/` say: their commands, variables, containers and scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from flows.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
AZURE = DEPLOY / "azure-pipelines" / "sweep.yml"
GITHUB = DEPLOY / "github" / "sweep.yml"
WINDOWS = DEPLOY / "windows" / "worker.ps1"
UNITS = {name: DEPLOY / "systemd" / f"modelmill-{name}.service" for name in ("worker", "server")}
MANIFESTS = {name: DEPLOY / "kubernetes" / name for name in ("worker", "server")}

FILES = sorted(
    path
    for path in DEPLOY.rglob("*")
    if path.is_file() and path.suffix not in {".py", ".pyc", ".env"} and path.name != ".gitignore"
)
PAGES = sorted((ROOT / "docs").glob("deploy*.md"))

_TYPED = re.compile(rf"(?:^|[\s`/])modelmill +({'|'.join(COMMANDS)})\b([^`\n]*)", re.MULTILINE)
_LISTED = re.compile(r"\[\s*\"?modelmill\"?\s*,([^\]]*)\]")
_SERVED = re.compile(r"-m deploy\.service (.*)")
_MODULE = re.compile(r"-m deploy\.environment ([^`\n]*)")
_SHELL = re.compile(r"\s(?:;|&&|\|\||\||>)\s.*$")


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def commands(path: Path) -> list[list[str]]:
    """Every modelmill command of a file, comments included, as arguments."""
    text = text_of(path).replace("\\\n", " ")
    typed = [
        [match[1], *shlex.split(_SHELL.sub("", match[2]), comments=True)]
        for match in _TYPED.finditer(text)
    ]
    listed = [
        [part.strip().strip('"') for part in match[1].split(",")]
        for match in _LISTED.finditer(text)
    ]
    return typed + listed


def services(path: Path) -> list[list[str]]:
    """The arguments of every `python -m deploy.service`; in PowerShell a text in two halves."""
    text = text_of(path).replace('" +\n', "").replace('`"', "'")
    text = re.sub(r"(-m deploy\.service .*?) +\" (worker )", r"\1 \2", text)
    return [shlex.split(match[1].rstrip('"')) for match in _SERVED.finditer(text)]


def makers(path: Path) -> list[list[str]]:
    """The arguments of every `python -m deploy.environment`."""
    return [shlex.split(match[1], comments=True) for match in _MODULE.finditer(text_of(path))]


def load(path: Path) -> Any:
    return yaml.safe_load(text_of(path))


def manifests(name: str) -> list[dict[str, Any]]:
    """The objects of one Kubernetes set, without what kustomize adds."""
    found = []
    for path in sorted(MANIFESTS[name].glob("*.yaml")):
        if path.name != "kustomization.yaml":
            found += list(yaml.safe_load_all(text_of(path)))
    return found


def pods(name: str) -> dict[str, dict[str, Any]]:
    """The pod specs of one Kubernetes set by the name of what makes them."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in manifests(name)
        if "template" in one.get("spec", {})
    }


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a systemd unit; most occur once."""
    found: dict[str, list[str]] = {}
    for line in text_of(UNITS[name]).splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def scripts(path: Path) -> dict[str, str]:
    """The bash scripts of a pipeline by the name of their step."""
    document = load(path)
    jobs = document["jobs"]
    steps = jobs[0]["steps"] if isinstance(jobs, list) else jobs["sweep"]["steps"]
    found = {}
    for step in steps:
        script = step.get("run") or step.get("bash") or step.get("inputs", {}).get("inlineScript")
        if script:
            found[str(step.get("displayName") or step["name"])] = str(script)
    return found


def step(path: Path, name: str) -> dict[str, Any]:
    """One step of a pipeline."""
    jobs = load(path)["jobs"]
    steps = jobs[0]["steps"] if isinstance(jobs, list) else jobs["sweep"]["steps"]
    return next(one for one in steps if name in {one.get("displayName"), one.get("name")})


def texts(value: Any) -> Iterator[str]:
    """Every text of a document."""
    if isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value

"""What works on this machine: one finding per question, with the next step."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path

from flows.cli.installation import not_installed, overwritten, sharers
from flows.output.activity import waiting_for
from flows.output.masking import masked
from flows.output.quantity import counted, named, show_size
from flows.settings.engines import engine_environment, engine_spec, runtimes_of
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.disk import existing, free
from machine.files import temporary_folder
from machine.installation import install, packages
from machine.ledger import Ledger
from matrix.errors import MillError, Unusable
from workers.compile.devices import available
from workers.errors import BuildFailed
from workers.host.client import EngineHost
from workers.host.engines import extra_of, installed_engines, missing_imports
from workers.host.venv import Environment
from workers.host.watch import HostLimits, Watching
from workers.measure.quiet import lacking
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import VIRTUAL, Missing
from workers.sources.errors import one_line

_BUILD = ("torch", "transformers", "optimum", "optimum-onnx", "onnx", "safetensors", "pillow")
_RUNTIME = ("onnxruntime-windowsml", "windowsml") if sys.platform == "win32" else ("onnxruntime",)
_SWEEP = ("prefect", "sqlalchemy", "sqlmodel", "alembic", "fastapi", "orjson", "azure-devops",
          "azure-identity")  # fmt: skip
_FOR = {"sweep": "to sweep and to look into a state", "build": "to build on this machine"}
_LEAST_FREE = 10 * 10**9
_START_LIMIT = 120.0
_ANSWER_LIMIT = 5.0
_DOWNLOAD_LIMIT = 3600.0


class Health(StrEnum):
    """How bad a finding is."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question."""

    what: str
    health: Health
    detail: str
    mend: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Answer every question in turn, changing nothing."""
    yield _python()
    yield _installation()
    yield from _packages()
    with temporary_folder("modelmill-doctor-") as logs:
        yield from _engines(settings, logs)
        yield from _runtimes(settings, logs)
    work = Workspace(settings)
    for what, ask in {"home": _home, "disk": _disk, "state": _state, "feed": _feed}.items():
        yield _asked(what, partial(ask, work), settings)
    yield quiet_finding(Ledger())
    yield _prefect()


def _python() -> Finding:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    good = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Finding("python", Health.GOOD if good else Health.BAD, text, "" if good else "use 3.11")


def _installation() -> Finding:
    """Whether another distribution has written over one of our packages, or is about to."""
    others = sharers(packages_distributions())
    shared = "; ".join(f"{', '.join(names)} has a {room} too" for room, names in others.items())
    try:
        changed = list(overwritten(distribution("modelmill")))
    except PackageNotFoundError:
        return Finding("installation", Health.NOTE, "not installed by pip: run from its source")
    text = f"modelmill {_version('modelmill')} in {Path(__file__).resolve().parents[2]}"
    again = install(again=True)
    if changed:
        text = "; ".join(filter(None, (f"{named(changed, 3)}: not modelmill's", shared)))
        names = sorted({name for sharing in others.values() for name in sharing})
        gone = f"{packages('uninstall', *names)}, then " if names else ""
        return Finding("installation", Health.BAD, text, gone + again)
    if shared:
        mend = f"removing it breaks modelmill; then {again}"
        return Finding("installation", Health.NOTE, f"{text}; {shared}", mend)
    return Finding("installation", Health.GOOD, text)


def _packages() -> Iterator[Finding]:
    for extra, needed in (("sweep", _SWEEP), ("build", (*_BUILD, *_RUNTIME))):
        if missing := ", ".join(name for name in needed if not _version(name)):
            mend = f"{install(extra)} {_FOR[extra]}"
            yield Finding(f"{extra} extra", Health.NOTE, f"missing: {missing}", mend)
        else:
            shown = ", ".join(f"{name} {_version(name)}" for name in needed)
            yield Finding(f"{extra} extra", Health.GOOD, shown)


def _engines(settings: Settings, logs: Path) -> Iterator[Finding]:
    for name in installed_engines():
        environment = engine_environment(name)
        if environment is None and not _version("onnx"):
            yield Finding(f"engine {name}", Health.NOTE, "needs the build extra")
        elif environment is None and (lacks := missing_imports(engine_spec(settings, name))):
            text = f"lacks {', '.join(lacks)}"
            extra = extra_of(name)
            mend = install(extra) if extra else ""
            needed = Health.BAD if settings.engine == name else Health.NOTE
            yield Finding(f"engine {name}", needed, text, mend)
        elif environment is None:
            yield _asked(f"engine {name}", partial(_engine, settings, name, logs), settings)
        else:
            yield _environment(settings, name, environment)


def _environment(settings: Settings, name: str, environment: Environment) -> Finding:
    """An engine in its own environment; it is bad only if it is missing and chosen."""
    what, python = f"engine {name}", settings.engine_pythons.get(name)
    if python is None:
        health = Health.BAD if settings.engine == name else Health.NOTE
        return Finding(what, health, "has no environment", f"modelmill engine install {name}")
    found = environment.check(settings.cwd / python)
    return Finding(what, Health.GOOD if found.ok else Health.BAD, found.detail, found.hint)


def _engine(settings: Settings, name: str, logs: Path) -> str:
    spec = engine_spec(settings, name)
    limits = HostLimits(start_timeout=_START_LIMIT, plan_timeout=_START_LIMIT)
    with closing(EngineHost(spec, limits=limits, log_dir=logs)) as host:
        tools = host.tools()
    # Digests of our own code are part of the keys of stages, and tell people nothing.
    named = {tool: found for tool, found in tools.items() if not tool.startswith("engine.")}
    return ", ".join(f"{tool} {found or 'none'}" for tool, found in sorted(named.items()))


def _runtimes(settings: Settings, logs: Path) -> Iterator[Finding]:
    """What can run a model here: provider, device, version, emulated or not."""
    limits = HostLimits(start_timeout=_START_LIMIT, timeout=_START_LIMIT)
    with closing(runtimes_of(settings, limits, logs)) as pool:
        targets = Workspace(settings).targets().every
        try:
            for one in pool.all():
                what = f"runtime {one.provider} {one.device}".rstrip()
                if isinstance(one, Missing):
                    labels = [row.label for row in targets if row.provider == one.provider]
                    use = f"; it would run {', '.join(labels)}" if labels else ""
                    yield Finding(what, Health.NOTE, f"missing: {one.why}{use}", one.hint)
                else:
                    how = f"emulated ({one.detail})" if one.emulated else one.detail or "native"
                    how += ": compiles only" if one.virtual else ""
                    yield Finding(what, Health.GOOD, f"{one.version}, {how}")
            for target in targets:
                own, what = pool.for_target(target), f"verify {target.label}"
                if isinstance(own, Missing):
                    yield Finding(what, Health.NOTE, f"on ONNX Runtime CPU alone: {own.why}")
                else:
                    yield Finding(what, Health.GOOD, f"on {own.name}")
            yield from profile_findings(settings, pool)
        except BuildFailed as error:
            yield Finding("runtimes", Health.NOTE, error.message, error.hint)


def install_provider(settings: Settings, name: str) -> str:
    """Have Windows ML download an execution provider; what it answers."""
    targets = Workspace(settings).targets()
    provider = targets.provider_called(name) or name
    limits = HostLimits(start_timeout=_START_LIMIT, timeout=_DOWNLOAD_LIMIT)
    with (
        temporary_folder("modelmill-doctor-") as logs,
        closing(runtimes_of(settings, limits, logs)) as pool,
    ):
        try:
            told = pool.install(provider, Watching(progress=waiting_for))
        except BuildFailed as error:  # of no cell
            raise Unusable(error.reason, hint=error.hint) from error
    return f"{told['provider']} {told['version']} is on this machine"


def profile_findings(settings: Settings, pool: Runtimes) -> Iterator[Finding]:
    """For every device profile: what compiles for it and checks the result here, or why nothing
    does."""
    work = Workspace(settings)
    for profile, here in available(pool, work.profiles(), work.targets()):
        what = f"profile {profile.label}"
        if isinstance(here, Missing):
            yield Finding(what, Health.NOTE, f"cannot be compiled for: {here.why}", here.hint)
            continue
        text, mend = f"compiled for and checked on {here.name}", ""
        if here.virtual:
            text = f"compiled for by {here.version}, and not checked: {VIRTUAL}"
        if not here.shared_contexts:
            text += ", which cannot open shared contexts: those are compiled, but not checked"
        if here.emulated and not settings.emulated:
            mend = "an emulator compiles only with --emulated"
        yield Finding(what, Health.NOTE if mend else Health.GOOD, text, mend)


def _disk(work: Workspace) -> Finding | str:
    space = free(work.home)
    text = f"{show_size(space)} free where {work.home} is"
    if space < _LEAST_FREE:
        return Finding("disk", Health.NOTE, text, "large models need more; set --disk-budget")
    return text


def _home(work: Workspace) -> str:
    there = existing(work.home)
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise Unusable(f"{there} cannot be written", hint="choose another place with --home")
    return str(work.home) + ("" if there == work.home else ", made by the first sweep")


def _state(work: Workspace) -> str:
    if not work.has_state():
        return "none yet; the first sweep makes one"
    with work.read_state() as state:
        return f"{state.label}, {counted(len(state.sweeps()), 'sweep')}"


def _feed(work: Workspace) -> str:
    from flows.sweep.listing import check_present

    feed = work.open_feed()
    if feed.is_new and work.has_state():
        with work.read_state() as state:
            check_present(feed, state)
    feed.check()
    return f"{feed.name} can be published to"


def quiet_finding(ledger: Ledger) -> Finding:
    """Whether something could be measured on this machine now."""
    if found := lacking(ledger):
        return Finding("measuring", Health.NOTE, f"needs {found}", "wait for it with --wait")
    return Finding("measuring", Health.GOOD, "no build and no measurement runs on this machine")


def _prefect() -> Finding:
    if not _version("prefect"):
        return Finding("prefect", Health.NOTE, "needs the sweep extra")
    version, url = f"prefect {_version('prefect')}", os.environ.get("PREFECT_API_URL")
    if not url:
        return Finding("prefect", Health.GOOD, f"{version}, each sweep starts a server of its own")
    import httpx

    shown = masked(url)
    try:
        with httpx.Client(timeout=_ANSWER_LIMIT) as client:
            client.get(f"{url.rstrip('/')}/health").raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        text = f"{version}, but the server {shown} does not answer: {masked(one_line(error))}"
        mend = "start it, correct PREFECT_API_URL, or remove it for sweeps on this machine"
        return Finding("prefect", Health.BAD, text, mend)
    return Finding("prefect", Health.GOOD, f"{version}, runs are shown on {shown}")


def _asked(what: str, ask: Callable[[], Finding | str], settings: Settings) -> Finding:
    """The answer to a question that may fail; a text means that all is well."""
    try:
        found = ask()
        return found if isinstance(found, Finding) else Finding(what, Health.GOOD, found)
    except MillError as error:
        return Finding(what, Health.BAD, error.message, error.hint)
    except ModuleNotFoundError as error:
        lacking = not_installed(error, settings)
        if lacking is None:
            raise
        return Finding(what, Health.NOTE, lacking.message, lacking.hint)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Finding(what, Health.BAD, f"{where}{error.strerror}", "check its permissions")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""

"""The source of a model's weights: what identifies it, and how to get its files.

A random model has a configuration in place of files; those of the zoo are Transformers' own, made
tiny: `matrix/data/zoo.toml` has the sizes by name, and what single architectures need besides.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file, read_json
from matrix.digest import FileEntry, files_digest, value_digest
from matrix.model import SourceKind
from matrix.zoo import TINY, tables
from workers.engine import Request
from workers.sources import hub
from workers.sources import ready_files as ready
from workers.sources.errors import export_error, failing
from workers.sources.links import own_file, refuse_foreign
from workers.sources.weights import check_complete, float_bytes, matching, patterns


@dataclass(frozen=True, slots=True)
class Resolved:
    """An identified source, before anything heavy is done with it."""

    kind: SourceKind
    digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the manifest: nothing in it depends on this machine."""
    commit: str | None = None
    size: int = 0
    """Bytes of the weights as float32; 0: unknown."""

    def as_json(self) -> dict[str, Any]:
        """`BuildPlan.source`."""
        return {"digest": self.digest, "kind": str(self.kind), **self.facts}


def resolve(request: Request) -> Resolved:
    """Identify the source of a request. Raises `StageError`; imports no torch."""
    source = request.model["source"]
    kind = SourceKind(source["kind"])
    if kind is SourceKind.RANDOM:
        facts = {
            "architecture": source["ref"],
            "config": configuration(source),
            "seed": int(source.get("seed") or 0),
        }
        return Resolved(kind, value_digest(facts), facts)
    if kind is SourceKind.HUB:
        commit = hub.commit_of(source["ref"], source.get("revision"), offline=offline(request))
        facts = {"id": source["ref"], "commit": commit}
        if source.get("file"):
            facts["file"] = source["file"]
        return Resolved(kind, value_digest(facts), facts, commit=commit)
    if source.get("file"):
        return _resolve_file(Path(source["ref"]), source["file"])
    return _resolve_folder(Path(source["ref"]), allowed(request))


def allowed(request: Request) -> dict[str, bool]:
    """What both the catalog and the flags permit."""
    allow = request.model.get("allow") or {}
    return {key: bool(allow.get(key)) for key in ("pickle", "remote_code")}


def offline(request: Request) -> bool:
    """Whether the Hub is known to be unreachable."""
    return bool(request.model.get("offline"))


def folder_of(request: Request, commit: str | None, scratch: Path) -> Path:
    """A folder with the model's files (hub and folder sources), checked for completeness."""
    source, allow = request.model["source"], allowed(request)
    if SourceKind(source["kind"]) is SourceKind.HUB:
        if commit is None:
            raise export_error(f"{source['ref']}: the plan names no commit", "plan it again")
        if source.get("file"):
            return hub.ready_file(
                source["ref"], commit, source["file"], scratch, offline=offline(request)
            )
        folder = hub.snapshot(source["ref"], commit, scratch, offline=offline(request), **allow)
    else:
        folder = Path(source["ref"])
        if source.get("file"):
            return folder
        refuse_foreign(folder)
    check_complete(folder, source["ref"], pickle=allow["pickle"])
    if not allow["remote_code"]:
        with suppress(OSError, ValueError):  # one that cannot be read loads no model
            refuse_kernels(read_json(folder / "config.json"), source["ref"])
    return folder


def refuse_kernels(config: object, where: str) -> None:
    """Raise if a configuration, or one inside it, names attention from the Hub: Transformers
    downloads that and runs it, whether or not code of the model may run."""
    if isinstance(config, list):
        for inner in config:
            refuse_kernels(inner, where)
    if not isinstance(config, dict):
        return
    for name, value in config.items():
        chosen = value.values() if isinstance(value, dict) else [value]
        attention = "attn_implementation" in name and any("/" in str(one) for one in chosen)
        if attention or (name == "use_kernels" and value):
            text = f"{where}: the config takes kernels from the Hub ({name}), which run as code"
            hint = "remove it from the config, or allow remote_code in the catalog and by flag"
            raise export_error(text, hint)
        refuse_kernels(value, where)


def _resolve_file(folder: Path, file: str) -> Resolved:
    """A ready ONNX file on this machine with its weights and the small files beside it."""
    if not (folder / file).is_file():
        raise export_error(f"{folder / file} does not exist", "correct the catalog")
    entries = [entry(folder, name) for name in ready.parts_of(folder, file)]
    entries.sort(key=lambda entry: entry.path)
    facts = {"file": file, "files": list(map(asdict, entries))}
    size = sum(entry.size for entry in entries)
    return Resolved(SourceKind.FOLDER, value_digest(facts), facts, size=size)


def _resolve_folder(folder: Path, allow: Mapping[str, bool]) -> Resolved:
    if not folder.is_dir():
        raise export_error(f"{folder} does not exist", "correct the path in the catalog")
    refuse_foreign(folder)
    check_complete(folder, str(folder), pickle=allow["pickle"])
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    wanted = matching(names, patterns(pickle=allow["pickle"], remote_code=allow["remote_code"]))
    entries = [entry(folder, name) for name in wanted]
    files = list(map(asdict, entries))
    heavy = (name for name in wanted if name.endswith((".safetensors", ".bin")))
    weights = sum(float_bytes(folder / name) for name in heavy)
    return Resolved(SourceKind.FOLDER, files_digest(entries), {"files": files}, size=weights)


_hashed: dict[tuple[str, int, int, int], str] = {}
"""(path, size, mtime_ns, inode) -> sha256, so the plans of many cells read the weights once."""


def entry(folder: Path, name: str) -> FileEntry:
    """A file as the digest of a source has it, by its name in there."""
    file = own_file(folder, name)
    hint = "correct its path in the catalog"
    with failing(export_error, f"{file} cannot be read", hint, OSError):
        stat = file.stat()
        key = (str(file), stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if key not in _hashed:
            _hashed[key] = hash_file(file)[0]
    return FileEntry(name, stat.st_size, _hashed[key])


_TOKENS = ("_token_id", "_token_index")


def configuration(source: Mapping[str, Any]) -> dict[str, Any]:
    """What a random source says of its configuration."""
    own = copy.deepcopy(dict(source.get("config") or {}))
    task = own.pop(TINY, None)
    if task is None:
        return own
    known = tables()
    sizes = {**known["sizes"], **known["task"].get(task, {})}
    return _merged(dict(_small(configured(source["ref"], own), sizes, known["lists"])), own)


def configured(architecture: str, values: Mapping[str, Any]) -> Any:
    """The configuration of Transformers with these values."""
    from transformers import AutoConfig

    # A copy: Transformers takes nested configurations apart.
    config = copy.deepcopy(dict(values))
    if "backbone_config" in config:
        config.setdefault("backbone", None)  # many name one by default, and TOML has no null
    what = f"'{architecture}' with this config is not a Transformers architecture"
    hint = "correct architecture or config in the catalog"
    with failing(export_error, what, hint, ValueError, TypeError, KeyError):
        return AutoConfig.for_model(architecture, **config)


def _whole(value: Any) -> bool:
    """Whether a value is a configuration of its own, which replaces the default."""
    return isinstance(value, dict) and "model_type" in value


def _small(
    config: Any, sizes: Mapping[str, Any], lists: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    vocabulary = min(_vocabulary(config), sizes["vocab_size"])
    spare = 2
    for name, value in sorted(vars(config).items()):
        if hasattr(value, "to_diff_dict"):
            if inner := dict(_small(value, sizes, lists)):
                yield name, inner
        elif isinstance(value, list | tuple):
            if name in lists and list(value) != lists[name]:
                yield name, lists[name]
        elif isinstance(value, bool) or not isinstance(value, int | float):
            continue
        elif name.endswith(_TOKENS) and vocabulary and value >= vocabulary:
            yield name, spare
            spare += 1
        elif name in sizes and (value > sizes[name] or isinstance(value, float)):
            yield name, sizes[name]


def _vocabulary(config: Any) -> int:
    text = getattr(config, "text_config", None)
    return getattr(config, "vocab_size", None) or getattr(text, "vocab_size", None) or 0


def _merged(small: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in own.items():
        inner = small.get(name)
        if isinstance(value, dict) and isinstance(inner, dict) and not _whole(value):
            small[name] = _merged(inner, value)
        else:
            small[name] = value
    return small

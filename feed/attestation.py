"""Checks what provenance and SBOM say of a version against its files and its manifest. Pure.

Everything read here was written by whoever published the package. Names in it are compared and
never used as paths, and whatever does not have the expected form is a problem, not a crash.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from feed.checked import differences, shown
from matrix import digest
from matrix.codec import parse_json
from matrix.model import EXPORT

Json = Mapping[str, Any]

Name = tuple[str, str]
"""Package and version."""

_OF_A_CELL = ("cell", "policy", "target")
"""What the manifest of a cell has, and that of an export has not."""


def parse(data: bytes) -> Json:
    """A JSON object. Raises `ValueError` in plain words."""
    try:
        value = parse_json(data)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if isinstance(value, dict):
        return value
    raise ValueError("not a JSON object")


def manifest_problems(manifest: Json, files: Iterable[digest.FileEntry]) -> list[str]:
    """The manifest's own list against the files."""

    held = {path: sha256 for path, sha256 in _contents(files).items() if path != digest.MANIFEST}

    def contents() -> list[str]:
        listed = {str(one["path"]): str(one["sha256"]) for one in manifest["files"]}
        return differences(listed, held)

    return _guarded("file list", contents)


def provenance_problems(
    stated: Json,
    manifest: Json,
    record: Json | None = None,
) -> list[str]:
    """The statement about a package against its manifest.

    `record`: the build record, which has what the manifest does not say.
    """
    return [
        *_guarded("kind", lambda: _kind(manifest)),
        *_guarded("build definition", lambda: _definition(stated, manifest)),
        *_guarded("run details", lambda: _run(stated, record) if record is not None else ()),
    ]


def statement_problems(
    stated: Json, files: Iterable[digest.FileEntry], name: Name | None
) -> list[str]:
    """The statement against all files, and against the name under which they were asked for."""
    entries = tuple(files)
    return [
        *_guarded("types", lambda: _types(stated)),
        *_guarded("subject", lambda: _subject(stated, entries)),
        *_guarded("name", lambda: _named(stated, name)),
    ]


def name_in(stated: Json) -> Name:
    """The package and version that a statement is about. Raises `ValueError`."""
    try:
        external = stated["predicate"]["buildDefinition"]["externalParameters"]
        return str(external["package"]), str(external["version"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"it names no package and version: {error!r}") from None


def kind_in(stated: Json) -> str:
    """What a version is, in words of the statement: `cell`, `export`, or of a record its kind."""
    try:
        return str(stated["predicate"]["buildDefinition"]["externalParameters"]["kind"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"it names no kind: {error!r}") from None


def is_record(stated: Json) -> bool:
    """Whether a statement is about a version without a model."""
    try:
        return bool(stated["predicate"]["buildDefinition"]["buildType"] == digest.RECORD_TYPE)
    except (KeyError, TypeError):
        return False


def sbom_problems(document: Json, manifest: Json, files: Iterable[digest.FileEntry]) -> list[str]:
    """The SBOM against the files and the source of the manifest."""

    def contents() -> list[str]:
        files_in = (one for one in document["components"] if one["type"] == "file")
        listed = {str(one["name"]): _sha256(one) for one in files_in}
        return differences(listed, _contents(files))

    def source() -> list[str]:
        told = {
            one["bom-ref"]: _sha256(one)
            for one in document["components"]
            if str(one.get("bom-ref")).partition(":")[0] == "source"
        }
        held = {
            f"source:{one['name']}": manifest["source"]["members"][one["name"]]["digest"]
            for one in manifest.get("members", ())
        }
        if told == (held or {"source": manifest["source"]["digest"]}):
            return []
        return ["it names another source than the manifest"]

    if document.get("bomFormat") != digest.BOM_FORMAT:
        return [f"it is not a {digest.BOM_FORMAT} document"]
    return [*_guarded("components", contents), *_guarded("source", source)]


def sealed(envelope: bytes) -> bytes:
    """The statement in an envelope, whoever may have signed it. Raises `ValueError`."""
    told = parse(envelope.partition(b"\n")[0])
    try:
        return base64.b64decode(told["payload"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no payload: {error!r}") from None


def recipe_in(stated: Json) -> Json:
    """What a package was built from, as its provenance has it. Raises `ValueError`."""
    try:
        definition = stated["predicate"]["buildDefinition"]
        if definition["buildType"] != digest.BUILD_TYPE:
            raise ValueError(f"its build type is {definition['buildType']!r}")
        recipe = definition["externalParameters"]
        if not isinstance(recipe, dict):
            raise TypeError("externalParameters")
    except (KeyError, TypeError) as error:
        raise ValueError(f"no build definition in {digest.PROVENANCE}: {error}") from None
    return recipe


def _types(stated: Json) -> Iterator[str]:
    wanted_type = digest.RECORD_TYPE if is_record(stated) else digest.BUILD_TYPE
    for name, wanted, found in (
        ("_type", digest.STATEMENT_TYPE, stated["_type"]),
        ("predicateType", digest.PREDICATE_TYPE, stated["predicateType"]),
        ("buildType", wanted_type, stated["predicate"]["buildDefinition"]["buildType"]),
    ):
        if found != wanted:
            yield f"its {name} is {found!r}, not {wanted}"


def _subject(stated: Json, files: tuple[digest.FileEntry, ...]) -> list[str]:
    """It must name every file but itself and its signature, and nothing else."""
    # Statements of earlier modelmills name the records of the run apart.
    beside = stated["predicate"]["runDetails"].get("byproducts", ())
    subject = _digests([*stated["subject"], *beside])
    if not subject:
        return ["it has no subject"]
    held = {file.path: file.sha256 for file in files if file.path not in digest.STATEMENT}
    return differences(subject, held)


def _named(stated: Json, name: Name | None) -> Iterator[str]:
    about = name_in(stated)
    if name is not None and about != name:
        yield f"it is about {' '.join(map(shown, about))}"


def _kind(manifest: Json) -> Iterator[str]:
    """What is called an export was never verified: it must not be a cell by another name."""
    kind, fields = manifest["kind"], [name for name in _OF_A_CELL if name in manifest]
    if kind == EXPORT and (fields or manifest["stages"][-1]["stage"] != EXPORT):
        yield "it says that it is an export, but it is not"
    elif kind == "cell" and len(fields) < len(_OF_A_CELL):
        yield "it says that it is a cell, but it is not"
    elif kind not in {"cell", EXPORT}:
        yield f"its kind is {kind!r}"


def _definition(stated: Json, manifest: Json) -> Iterator[str]:
    definition = stated["predicate"]["buildDefinition"]
    external, internal = definition["externalParameters"], definition["internalParameters"]
    inputs = {one["name"]: one.get("digest", {}) for one in definition["resolvedDependencies"]}
    export, portable = (manifest.get(name, {}).get("tree") for name in ("export", "portable"))
    stages = [_stage(one) for one in internal["stages"]]
    built = [_stage(one) for one in manifest["stages"]]
    tools = {one["name"]: one["uri"] for one in definition["resolvedDependencies"] if "uri" in one}
    used = digest.tool_uris(manifest["engine"]["tools"])
    pairs = {
        "kind of package": (external["kind"], manifest["kind"]),
        "engine": (external["engine"], manifest["engine"]["name"]),
        "source": (inputs["source"]["sha256"], manifest["source"]["digest"]),
        "export": (inputs.get("export", {}).get(digest.TREE_DIGEST), export),
        # Statements of earlier modelmills leave it to the manifest.
        "portable package": (
            inputs.get("portable", {}).get(digest.TREE_DIGEST, portable),
            portable,
        ),
        "stages": (stages, built),
        "model": (_like(external["model"], manifest["model"]), manifest["model"]),
        "tools": (_like(tools, used), used),
        "version": (internal["version"], external["version"]),
    }
    for one in manifest.get("members", ()):
        name = one["name"]
        held = manifest["source"]["members"][name]["digest"]
        pairs[f"source of {name}"] = (inputs.get(f"source {name}", {}).get("sha256"), held)
        for what in ("export", "portable"):
            told = inputs.get(f"{what} {name}", {}).get(digest.TREE_DIGEST, one[what]["tree"])
            pairs[f"{what} of {name}"] = (told, one[what]["tree"])
    if "cell" in manifest:
        pairs["cell"] = (external["cell"], manifest["cell"])
        for name in ("policy", "target"):
            pairs[name] = (_like(external[name], manifest[name]), manifest[name])
    yield from _mismatches(pairs, "the package has")


def _stage(one: Json) -> tuple[Any, ...]:
    return one["stage"], one["component"], one["key"], one["tree"]


def _like(told: Json, true: Json) -> Json:
    """The part of a statement that can be compared with the truth."""
    return {name: told.get(name) for name in true}


def _run(stated: Json, record: Json) -> Iterator[str]:
    """Against the build record."""
    predicate = stated["predicate"]
    internal, run = predicate["buildDefinition"]["internalParameters"], predicate["runDetails"]
    began = datetime.fromisoformat(record["started"]).replace(microsecond=0)
    pairs = {
        "stamp": (internal["stamp"], record["stamp"]),
        "version": (internal["version"], record["version"]),
        "attempt": (internal["attempt"], record["attempt"]),
        "Python": (run["builder"]["version"]["python"], record["host"]["python"]),
        "begin": (datetime.fromisoformat(run["metadata"]["startedOn"]), began),
    }
    yield from _mismatches(pairs, "the build record")


def _mismatches(pairs: Mapping[str, tuple[Any, Any]], than: str) -> Iterator[str]:
    for name, (told, true) in pairs.items():
        if told != true:
            yield f"it names another {name} than {than}"


def _guarded(part: str, check: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return list(check())
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return [f"its {part} cannot be read: {type(error).__name__}: {error}"]


def _digests(resources: Iterable[Json]) -> dict[str, str]:
    """The SHA-256 of each resource that a statement names."""
    return {str(one["name"]): str(one["digest"]["sha256"]) for one in resources}


def _sha256(component: Json) -> str:
    hashes = {one["alg"]: str(one["content"]) for one in component["hashes"]}
    return hashes["SHA-256"]


def _contents(files: Iterable[digest.FileEntry]) -> dict[str, str]:
    """The files that the tree digest covers."""
    return {file.path: file.sha256 for file in files if not digest.is_run_record(file.path)}

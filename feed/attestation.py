"""Checks what provenance and SBOM say of a package against its files and its manifest. Pure.

Everything read here was written by whoever published the package. Names in it are compared and
never used as paths, and whatever does not have the expected form is a problem, not a crash.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from feed.checked import differences
from matrix import digest

Json = Mapping[str, Any]

_AFTER_SBOM = frozenset({digest.PROVENANCE, digest.SIGNATURE})
"""Written after everything that the statement names."""


def parse(data: bytes) -> Json:
    """A JSON object. Raises `ValueError` in plain words."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if isinstance(value, dict):
        return value
    raise ValueError("not a JSON object")


def manifest_problems(manifest: Json, files: Iterable[digest.FileEntry]) -> list[str]:
    """The manifest's own list against the files."""

    held = _held(files, without=digest.RUN_RECORDS | {digest.MANIFEST})

    def contents() -> list[str]:
        listed = {str(one["path"]): str(one["sha256"]) for one in manifest["files"]}
        return differences(listed, held)

    return _guarded("file list", contents)


def provenance_problems(
    stated: Json,
    manifest: Json,
    files: Iterable[digest.FileEntry],
    version: str | None,
    record: Json | None = None,
) -> list[str]:
    """The statement against the files, the manifest and the version it is published under.

    `record`: the build record, which has what the manifest does not say.
    """
    entries = tuple(files)
    return [
        *_guarded("types", lambda: _types(stated)),
        *_guarded("subject", lambda: _named(stated, entries)),
        *_guarded("build definition", lambda: _definition(stated, manifest, version)),
        *_guarded("run details", lambda: _run(stated, record, entries)),
    ]


def sbom_problems(document: Json, manifest: Json, files: Iterable[digest.FileEntry]) -> list[str]:
    """The SBOM against the files and the source of the manifest."""

    def contents() -> list[str]:
        files_in = (one for one in document["components"] if one["type"] == "file")
        listed = {str(one["name"]): _sha256(one) for one in files_in}
        return differences(listed, _held(files, without=digest.RUN_RECORDS))

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


def records_in(stated: Json) -> Mapping[str, str]:
    """The records of the run (build record, SBOM) that a provenance names, with their SHA-256.

    Empty for a document that modelmill did not write.
    """
    try:
        named = _digests(stated["predicate"]["runDetails"]["byproducts"])
    except (LookupError, TypeError):
        return {}
    return {name: sha256 for name, sha256 in named.items() if name in digest.RUN_RECORDS}


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
    definition = stated["predicate"]["buildDefinition"]
    for name, wanted, found in (
        ("_type", digest.STATEMENT_TYPE, stated["_type"]),
        ("predicateType", digest.PREDICATE_TYPE, stated["predicateType"]),
        ("buildType", digest.BUILD_TYPE, definition["buildType"]),
    ):
        if found != wanted:
            yield f"its {name} is {found!r}, not {wanted}"


def _named(stated: Json, files: tuple[digest.FileEntry, ...]) -> list[str]:
    """It must name every file that was there when it was written, and nothing else."""
    subject = _digests(stated["subject"])
    beside = _digests(stated["predicate"]["runDetails"]["byproducts"])
    known = [file for file in files if file.path in digest.RUN_RECORDS]
    if not subject:
        return ["it has no subject"]
    return [
        *differences(subject, _held(files, without=digest.RUN_RECORDS)),
        *differences(beside, _held(known, without=_AFTER_SBOM)),
    ]


def _definition(stated: Json, manifest: Json, version: str | None) -> Iterator[str]:
    definition = stated["predicate"]["buildDefinition"]
    external, internal = definition["externalParameters"], definition["internalParameters"]
    inputs = {one["name"]: one.get("digest", {}) for one in definition["resolvedDependencies"]}
    export = manifest.get("export", {}).get("tree")
    stages = [_stage(one) for one in internal["stages"]]
    built = [_stage(one) for one in manifest["stages"]]
    tools = {one["name"]: one["uri"] for one in definition["resolvedDependencies"] if "uri" in one}
    used = {
        name: digest.tool_uri(name, str(value))
        for name, value in manifest["engine"]["tools"].items()
        if name != "engine"
    }
    pairs = {
        "kind of package": (external["kind"], manifest["kind"]),
        "engine": (external["engine"], manifest["engine"]["name"]),
        "source": (inputs["source"]["sha256"], manifest["source"]["digest"]),
        "export": (inputs.get("export", {}).get(digest.TREE_DIGEST), export),
        "stages": (stages, built),
        "model": (_like(external["model"], manifest["model"]), manifest["model"]),
        "tools": (_like(tools, used), used),
        "version": (internal["version"], version or internal["version"]),
    }
    for one in manifest.get("members", ()):
        name = one["name"]
        source, exported = (inputs.get(f"{what} {name}", {}) for what in ("source", "export"))
        held = manifest["source"]["members"][name]["digest"]
        pairs[f"source of {name}"] = (source.get("sha256"), held)
        pairs[f"export of {name}"] = (exported.get(digest.TREE_DIGEST), one["export"]["tree"])
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


def _run(stated: Json, record: Json | None, files: Iterable[digest.FileEntry]) -> Iterator[str]:
    """Against the build record, if that is the one which the statement names."""
    predicate = stated["predicate"]
    internal, run = predicate["buildDefinition"]["internalParameters"], predicate["runDetails"]
    held = {file.path: file.sha256 for file in files}
    if record is None or _digests(run["byproducts"]).get(digest.BUILD_RECORD) != held.get(
        digest.BUILD_RECORD
    ):
        return  # another check reports that
    began = datetime.fromisoformat(record["started"]).replace(microsecond=0)
    pairs = {
        "stamp": (internal["stamp"], record["stamp"]),
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


def _held(files: Iterable[digest.FileEntry], *, without: frozenset[str]) -> dict[str, str]:
    return {file.path: file.sha256 for file in files if file.path not in without}

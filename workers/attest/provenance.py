"""The provenance of a package: an in-toto statement with a SLSA predicate, and its recipe. Pure.

subject                every file of the package but this one and its signature, by digest
externalParameters     the name and version of the package, and its recipe: what catalog, target
                       and flags decide
internalParameters     what this run added: stamp, attempt, each stage with its key
resolvedDependencies   the inputs, by digest or version: source, export, portable package, tools
runDetails             the builder and the times

The recipe is everything that the plan decided for a package, so it can be built again. What a
machine decides (folders, budgets, times) is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from matrix.codec import from_json, to_json
from matrix.digest import (
    BUILD_TYPE,
    ENGINE_CODE,
    PREDICATE_TYPE,
    RECORD_TYPE,
    STATEMENT_TYPE,
    TREE_DIGEST,
    FileEntry,
    package_uri,
    tool_uris,
)
from matrix.model import Cell, SourceKind
from workers.build.request import target_json

Json = Mapping[str, Any]


def statement(
    manifest: Json,
    record: Json,
    recipe: Json,
    files: Iterable[FileEntry],
    *,
    builder: str,
    modelmill: str,
    finished: datetime,
    origin: str = "",
) -> dict[str, Any]:
    """The statement about a package. `record`: its build record; `files`: all but this one;
    `origin`: the URI of the portable package that it was compiled from."""
    engine = manifest["engine"]
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"kind": manifest["kind"], "engine": engine["name"], **recipe},
        "internalParameters": {
            "stamp": record["stamp"],
            "version": record["version"],
            "attempt": record["attempt"],
            "stages": _stages(manifest, record),
        },
        "resolvedDependencies": [*_inputs(manifest, recipe, origin), *_tools(engine["tools"])],
    }
    run = {
        "builder": {
            "id": builder or _builder(record["host"]["name"]),
            "version": {
                "modelmill": modelmill,
                **_code(engine),
                "python": record["host"]["python"],
            },
        },
        "metadata": {
            "invocationId": f"{record['version']}#{record['attempt']}",
            "startedOn": _utc(datetime.fromisoformat(record["started"])),
            "finishedOn": _utc(finished),
        },
    }
    return _stated(files, definition, run)


def record_statement(
    kind: str,
    package: str,
    version: str,
    files: Iterable[FileEntry],
    *,
    of: Iterable[Json] = (),
    builder: str,
    host: str,
    modelmill: str,
    finished: datetime,
) -> dict[str, Any]:
    """The statement about a version without a model. `of`: the packages that it is about."""
    definition = {
        "buildType": RECORD_TYPE,
        "externalParameters": {"kind": kind, "package": package, "version": version},
        "internalParameters": {},
        "resolvedDependencies": [
            {
                "name": "subject",
                "uri": package_uri(one["package"], one["version"]),
                "digest": {TREE_DIGEST: one["tree"]},
            }
            for one in of
        ],
    }
    run = {
        "builder": {"id": builder or _builder(host), "version": {"modelmill": modelmill}},
        "metadata": {"finishedOn": _utc(finished)},
    }
    return _stated(files, definition, run)


def _stated(files: Iterable[FileEntry], definition: Json, run: Json) -> dict[str, Any]:
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": one.path, "digest": {"sha256": one.sha256}} for one in sorted(files)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"buildDefinition": definition, "runDetails": run},
    }


def source_uri(source: Json, recipe: Json) -> str:
    """The source of the model, as a URI."""
    origin = recipe["model"]["source"]
    if origin["kind"] == "hub":
        commit = source.get("commit") or origin["revision"]
        at = f"@{str(commit).lower()}" if commit else ""
        return f"pkg:huggingface/{quote(origin['ref'])}{at}"
    return f"urn:modelmill:{origin['kind']}:{quote(origin['ref'], safe='')}"


def _stages(manifest: Json, record: Json) -> list[dict[str, Any]]:
    ran = {(run["stage"], run["component"]): run for run in record["stages"]}
    stages = []
    for stage in manifest["stages"]:
        run = ran.get((stage["stage"], stage["component"]), {})
        named = {name: stage[name] for name in ("stage", "component", "key", "tree")}
        stages.append({**named, "reused": run.get("reused"), "seconds": run.get("seconds")})
    return stages


def _inputs(manifest: Json, recipe: Json, origin: str) -> list[dict[str, Any]]:
    """Of a context group: those of every member that it holds."""
    members = {one["cell"]: one for one in manifest.get("members", ())}
    if not members:
        return _inputs_of(manifest, recipe, origin)
    sources = manifest["source"]["members"]
    inputs = [{"name": "source", "digest": {"sha256": manifest["source"]["digest"]}}]
    for one in recipe["members"]:
        if member := members.get(one["cell"]):
            own = {**member, "source": sources[member["name"]]}
            inputs += [
                {**item, "name": f"{item['name']} {member['name']}"}
                for item in _inputs_of(own, one)
            ]
    return inputs


def _inputs_of(manifest: Json, recipe: Json, origin: str = "") -> list[dict[str, Any]]:
    source = manifest["source"]
    digest = {"sha256": source["digest"]}
    if source.get("commit"):
        digest["gitCommit"] = source["commit"]
    inputs = [{"name": "source", "uri": source_uri(source, recipe), "digest": digest}]
    export = manifest.get("export", {}).get("tree")
    if export:
        inputs.append({"name": "export", "digest": {TREE_DIGEST: export}})
    portable = manifest.get("portable", {}).get("tree")
    if portable:
        named = {"uri": origin} if origin else {}
        inputs.append({"name": "portable", **named, "digest": {TREE_DIGEST: portable}})
    return inputs


def _tools(tools: Json) -> list[dict[str, Any]]:
    return [{"name": name, "uri": uri} for name, uri in tool_uris(tools).items()]


def _code(engine: Json) -> dict[str, str]:
    """The digests of the engine's code for each stage."""
    return {
        f"engine {engine['name']}, {name.removeprefix(ENGINE_CODE)}": str(digest)
        for name, digest in sorted(engine["tools"].items())
        if name.startswith(ENGINE_CODE)
    }


def _builder(host: object) -> str:
    return f"urn:modelmill:host:{quote(str(host), safe='')}"


def _utc(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_NOT_OF_A_CELL = {"group", "priority", "overrides", "per_target", "needs", "extra", "where"}
"""What a model has for planning and for looking at; a new field of it is part of the recipe."""
_ALLOWED = {"remote_code", "pickle"}
"""What the user allows for it, which may be less than the catalog asks for."""


def recipe_of(cell: Cell, *, allow: Json) -> dict[str, Any]:
    """The recipe of a cell. Local folders appear by name only; digests identify their content."""
    model = to_json(cell.model)
    members = [recipe_of(one, allow=allow) for one in cell.members]
    if cell.model.source.kind is SourceKind.FOLDER:
        model["source"]["ref"] = PurePath(cell.model.source.ref).name
    if cell.model.recipes:
        model["recipes"] = PurePath(cell.model.recipes).name
    return {
        "cell": cell.id,
        "package": cell.package,
        "version": cell.version,
        "model": {k: v for k, v in model.items() if k not in _NOT_OF_A_CELL | _ALLOWED},
        "allow": dict(allow),
        "target": target_json(cell.target),
        "policy": to_json(cell.policy),
        **({"profile": to_json(cell.profile)} if cell.profile else {}),
        **({"members": members} if members else {}),
    }


def cell_of(
    recipe: Json, *, timeout: float, folder: str | None = None, recipes: str | None = None
) -> Cell:
    """The cell of a recipe. Raises `KeyError`, `TypeError` or `ValueError` if it is not valid.

    `folder`: where the source of a folder model is on this machine; `recipes`: its recipes.
    """
    model = {**recipe["model"], **{name: recipe["allow"][name] for name in _ALLOWED}}
    if folder is not None and model["source"]["kind"] == SourceKind.FOLDER:
        model["source"] = {**model["source"], "ref": folder}
    if recipes:
        model["recipes"] = recipes
    values = {
        "id": recipe["cell"],
        "model": model,
        **{name: recipe[name] for name in ("package", "version", "target", "policy")},
        "profile": recipe.get("profile"),
        "members": [
            cell_of(one, timeout=timeout, folder=folder, recipes=recipes)
            for one in recipe.get("members", ())
        ],
        "timeout": timeout,
        "publish_timeout": timeout,
    }
    return from_json(values, Cell)

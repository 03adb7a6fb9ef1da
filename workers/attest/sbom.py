"""The SBOM of a package: the model with its files and source, and its build environment. Pure.

The distributions of the engine's interpreter are listed as components that are `excluded`: they
made the package but are not part of it. Those that can change a byte of it are marked as tools.

Written by hand: cyclonedx-python-lib takes 61 ms of processor time for a document of 130
components, this module 0.06 ms, and every package of a sweep has such a document. It would add
7 MB of distributions and replace none of the mapping below. The tests validate the documents with
the library's strict schema.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from matrix.digest import BOM_FORMAT, BOM_VERSION, FileEntry, is_run_record, tool_uri
from workers.attest.provenance import source_uri

Json = Mapping[str, Any]
Component = dict[str, Any]

_ROOT = "package"
_SOURCE = "source"
_UNKNOWN = "NOASSERTION"
_SPDX = {
    name.casefold(): name
    for name in (
        "AFL-3.0", "AGPL-3.0-only", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause", "BSD-3-Clause",
        "BSD-3-Clause-Clear", "BSL-1.0", "CC-BY-2.0", "CC-BY-2.5", "CC-BY-3.0", "CC-BY-4.0",
        "CC-BY-NC-2.0", "CC-BY-NC-3.0", "CC-BY-NC-4.0", "CC-BY-NC-ND-4.0", "CC-BY-NC-SA-2.0",
        "CC-BY-NC-SA-3.0", "CC-BY-NC-SA-4.0", "CC-BY-ND-4.0", "CC-BY-SA-3.0", "CC-BY-SA-4.0",
        "CC0-1.0", "ECL-2.0", "EPL-1.0", "EPL-2.0", "EUPL-1.1", "EUPL-1.2", "GPL-2.0-only",
        "GPL-3.0-only", "ISC", "LGPL-2.1-only", "LGPL-3.0-only", "MIT", "MPL-2.0", "MS-PL",
        "MulanPSL-2.0", "NCSA", "ODC-By-1.0", "ODbL-1.0", "OFL-1.1", "OSL-3.0", "PDDL-1.0",
        "PostgreSQL", "Unlicense", "WTFPL", "Zlib",
    )
}  # fmt: skip
"""SPDX's spelling of licences; the Hub writes them in small letters."""
_SPACE = uuid.UUID("6d6f6465-6c6d-696c-6c20-73626f6d2031")
"""The namespace of serial numbers: a package always gets the same one."""


def sbom(
    manifest: Json,
    record: Json,
    recipe: Json,
    files: Iterable[FileEntry],
    environment: Iterable[Component],
    *,
    name: str,
    tree: str,
    modelmill: str,
) -> dict[str, Any]:
    """The document of a package; `environment` is from `environment_of`."""
    model = manifest["model"]
    licenses = _licenses(record)
    sources = list(_sources(manifest, recipe, licenses))
    contents = [_file(one) for one in sorted(files) if not is_run_record(one.path)]
    return {
        "bomFormat": BOM_FORMAT,
        "specVersion": BOM_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, record['version'] + tree)}",
        "version": 1,
        "metadata": {
            "timestamp": record["started"],
            "tools": {
                "components": [{"type": "application", "name": "modelmill", "version": modelmill}]
            },
            "component": {
                "type": "machine-learning-model",
                "bom-ref": _ROOT,
                "name": name,
                "version": record["version"],
                "licenses": licenses,
                "modelCard": {"modelParameters": {"task": model["task"]}},
                "properties": _properties(tree=tree, model_type=model["model_type"]),
            },
        },
        "components": [*sources, *contents, *environment],
        "dependencies": [
            {"ref": _ROOT, "dependsOn": [one["bom-ref"] for one in (*sources, *contents)]}
        ],
    }


def environment_of(environment: Json, tools: Iterable[str]) -> list[Component]:
    """Everything that is installed where the engine runs; computed once for all packages."""
    python, system = environment["python"], environment["system"]
    used = {name.lower().replace("_", "-") for name in tools}
    components: list[Component] = [
        {
            "type": "operating-system",
            "bom-ref": "system",
            "name": system["name"] or "unknown",
            "version": system["release"],
            "scope": "excluded",
            "properties": _properties(machine=system["machine"]),
        },
        {
            "type": "platform",
            "bom-ref": "python",
            "name": python["implementation"],
            "version": python["version"],
            "scope": "excluded",
        },
    ]
    for one in environment["distributions"]:
        uri = tool_uri(one["name"], one["version"])
        component: Component = {
            "type": "library",
            "bom-ref": uri,
            "name": one["name"],
            "version": one["version"],
            "purl": uri,
            "scope": "excluded",
        }
        if one["license"]:
            component["licenses"] = [{"expression": one["license"]}]
        if one["name"].lower().replace("_", "-") in used:
            component["properties"] = _properties(tool="true")
        components.append(component)
    return components


def _licenses(record: Json) -> list[Json]:
    """What the export has read of the model's licence, in words of CycloneDX; SPDX has ids of its
    own for most names that the Hub uses."""
    told = (run.get("info", {}).get("license") for run in record["stages"])
    name = next(filter(None, told), _UNKNOWN)
    spdx = _SPDX.get(name.casefold())
    return [{"license": {"id": spdx} if spdx else {"name": name}}]


def _sources(manifest: Json, recipe: Json, licenses: list[Json]) -> Iterator[Component]:
    """The source of the model; of a context group, those of the members that it holds, whose
    licences nobody has read."""
    members = {one["cell"]: one["name"] for one in manifest.get("members", ())}
    if not members:
        yield _source(manifest["source"], recipe, _SOURCE, licenses)
    for one in recipe.get("members", ()):
        if name := members.get(one["cell"]):
            source, ref = manifest["source"]["members"][name], f"{_SOURCE}:{name}"
            yield _source(source, one, ref, _licenses({"stages": ()}))


def _source(source: Json, recipe: Json, ref: str, licenses: list[Json]) -> Component:
    origin = recipe["model"]["source"]
    component: Component = {
        "type": "machine-learning-model",
        "bom-ref": ref,
        "name": recipe["model"]["id"],
        "version": str(source.get("commit") or origin["revision"] or source["digest"]),
        "hashes": [_hash(source["digest"])],
        "licenses": licenses,
        "properties": _properties(kind=origin["kind"]),
    }
    if origin["kind"] == "hub":
        component["purl"] = source_uri(source, recipe)
    return component


def _file(entry: FileEntry) -> Component:
    return {
        "type": "file",
        "bom-ref": f"file:{entry.path}",
        "name": entry.path,
        "hashes": [_hash(entry.sha256)],
        "properties": _properties(size=str(entry.size)),
    }


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}


def _properties(**values: str) -> list[dict[str, str]]:
    return [{"name": f"modelmill:{name}", "value": value} for name, value in values.items()]

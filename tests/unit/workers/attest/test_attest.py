"""Provenance and SBOM: valid by their own rules, complete, and no part of a package's identity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from feed.verify import verify_folder
from machine.files import remove_tree
from matrix.digest import PREDICATE_TYPE, PROVENANCE, SBOM, SIGNATURE, STATEMENT_TYPE, tree_digest
from matrix.model import Origin, Source, SourceKind
from matrix.status import FailureClass
from tests.fakes.attested import AttestationHarness, rewritten
from tests.plans.cells import make_cell, plan_model
from workers.attest.attester import Attester
from workers.attest.provenance import cell_of, recipe_of
from workers.attest.sbom import environment_of
from workers.build.builder import Built
from workers.errors import BuildFailed

ALLOW = {"remote_code": False, "pickle": False}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AttestationHarness]:
    made = AttestationHarness(tmp_path / "works")
    yield made
    made.close()


def read(built: Built, name: str) -> Any:
    return json.loads((built.folder / name).read_bytes())


def digests(built: Built) -> dict[str, str]:
    return {file.entry.path: file.entry.sha256 for file in built.files}


# -- the statement


def test_every_file_but_the_statement_itself_is_named_by_digest(
    harness: AttestationHarness,
) -> None:
    built = harness.attested(make_cell(label="qnn_npu", precision="w8a16"))
    stated = read(built, PROVENANCE)
    told = {one["name"]: one["digest"]["sha256"] for one in stated["subject"]}
    judged = {f"samples/0{number}.npz" for number in range(4)}
    assert set(told) == {"model.onnx", "modelmill.json", "build.json", SBOM, *judged}
    held = digests(built)
    assert held.pop(PROVENANCE)
    assert told == held


def test_the_statement_keeps_the_rules_of_in_toto_and_slsa(harness: AttestationHarness) -> None:
    stated = read(harness.attested(make_cell()), PROVENANCE)
    assert set(stated) == {"_type", "subject", "predicateType", "predicate"}
    assert (stated["_type"], stated["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    predicate = stated["predicate"]
    assert set(predicate) == {"buildDefinition", "runDetails"}
    definition, run = predicate["buildDefinition"], predicate["runDetails"]
    assert set(definition) == {
        "buildType",
        "externalParameters",
        "internalParameters",
        "resolvedDependencies",
    }
    assert set(run) == {"builder", "metadata"}
    assert set(run["builder"]) <= {"id", "version", "builderDependencies"}
    assert all(isinstance(value, str) for value in run["builder"]["version"].values())
    assert set(run["metadata"]) == {"invocationId", "startedOn", "finishedOn"}
    for moment in (run["metadata"]["startedOn"], run["metadata"]["finishedOn"]):
        assert moment.endswith("Z")
    for uri in (definition["buildType"], run["builder"]["id"]):
        assert ":" in uri
    resources = [*stated["subject"], *definition["resolvedDependencies"]]
    for one in resources:
        assert set(one) <= {"uri", "digest", "name", "downloadLocation", "mediaType", "content"}
        assert one.get("uri") or one.get("digest")
    assert definition["externalParameters"]


def test_inputs_tools_and_stages_are_those_of_the_manifest(harness: AttestationHarness) -> None:
    built = harness.attested(make_cell())
    definition = read(built, PROVENANCE)["predicate"]["buildDefinition"]
    dependencies = {one["name"]: one for one in definition["resolvedDependencies"]}
    assert dependencies["source"]["digest"] == {"sha256": built.manifest["source"]["digest"]}
    assert dependencies["export"]["digest"] == {"modelmillTree": built.manifest["export"]["tree"]}
    assert dependencies["fake"]["uri"] == "pkg:pypi/fake@1"
    keys = [stage["key"] for stage in definition["internalParameters"]["stages"]]
    assert keys == [stage["key"] for stage in built.manifest["stages"]]
    assert definition["internalParameters"]["stamp"] == "20260609"


@pytest.mark.parametrize(
    ("version", "uri"),
    [("0.0.0-1-x", {"uri": "pkg:generic/modelmill-tiny-model@0.0.0-1-x"}), ("", {})],
)
def test_what_was_compiled_names_the_portable_package_that_it_is_made_of(
    harness: AttestationHarness, version: str, uri: dict[str, str]
) -> None:
    cell, tree = make_cell(), "a" * 64
    built = harness.builder.build(cell)
    compiled = replace(built, manifest={**built.manifest, "portable": {"tree": tree}})
    origin = replace(cell, origin=Origin(version, tree))
    told = Attester(harness.host).attest(rewritten(compiled), origin)
    definition = read(told, PROVENANCE)["predicate"]["buildDefinition"]
    inputs = {one["name"]: one for one in definition["resolvedDependencies"]}
    assert inputs["portable"] == {"name": "portable", **uri, "digest": {"modelmillTree": tree}}
    assert verify_folder(told.folder).ok
    inputs["portable"]["digest"]["modelmillTree"] = "b" * 64
    definition["resolvedDependencies"] = list(inputs.values())
    stated = {**read(told, PROVENANCE)}
    stated["predicate"]["buildDefinition"] = definition
    (told.folder / PROVENANCE).write_text(json.dumps(stated))
    assert any("another portable package" in text for text in verify_folder(told.folder).problems)


def test_a_source_on_the_hub_is_named_with_its_commit(harness: AttestationHarness) -> None:
    cell = make_cell()
    hub = replace(cell.model, id="org/Name", source=Source(SourceKind.HUB, "org/Name", "main"))
    built = harness.builder.build(cell)
    commit = "A" * 40
    manifest = {**built.manifest, "source": {**built.manifest["source"], "commit": commit}}
    attester = Attester(harness.host)
    told = attester.attest(replace(built, manifest=manifest), replace(cell, model=hub))
    source = read(told, PROVENANCE)["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert source["uri"] == f"pkg:huggingface/org/Name@{commit.lower()}"
    assert source["digest"]["gitCommit"] == commit
    assert read(told, SBOM)["components"][0]["purl"] == source["uri"]


def test_a_folder_is_named_without_the_way_to_it(
    harness: AttestationHarness, tmp_path: Path
) -> None:
    cell = make_cell()
    folder = Source(SourceKind.FOLDER, str(tmp_path / "home" / "weights"))
    built = harness.builder.build(cell)
    told = Attester(harness.host).attest(
        built, replace(cell, model=replace(cell.model, source=folder))
    )
    for name in (PROVENANCE, SBOM):
        assert str(tmp_path) not in (told.folder / name).read_text()
    assert "weights" in (told.folder / PROVENANCE).read_text()


def test_a_named_builder_stands_for_the_host(harness: AttestationHarness) -> None:
    mine = harness.attested(make_cell(), builder="https://example.org/mill")
    assert read(mine, PROVENANCE)["predicate"]["runDetails"]["builder"]["id"] == (
        "https://example.org/mill"
    )


# -- the bill of materials


@pytest.mark.parametrize("composite", [False, True])
def test_the_bill_of_materials_is_valid(harness: AttestationHarness, composite: bool) -> None:
    config: dict[str, Any] = {"components": ["enc", "dec"], "files": {"config.json": "{}"}}
    if not composite:
        config.clear()
    built = harness.attested(make_cell(label="qnn_npu", precision="w8a16", **config))
    text = (built.folder / SBOM).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    listed = {
        one["name"]: one["hashes"][0]["content"]
        for one in json.loads(text)["components"]
        if one["type"] == "file"
    }
    own = {"build.json", SBOM, PROVENANCE}
    assert listed == {path: sha for path, sha in digests(built).items() if path not in own}


@pytest.mark.parametrize(
    ("told", "licence"),
    [
        ("apache-2.0", {"id": "Apache-2.0"}),
        ("llama3.1", {"name": "llama3.1"}),
        (None, {"name": "NOASSERTION"}),
    ],
)
def test_the_bill_of_materials_names_the_licence_of_the_model(
    harness: AttestationHarness, told: str | None, licence: dict[str, str]
) -> None:
    cell = make_cell()
    built = harness.builder.build(cell)
    stages = [{**one, "info": {"license": told}} for one in built.build_record["stages"]]
    record = {**built.build_record, "stages": stages}
    attested = Attester(harness.host).attest(replace(built, build_record=record), cell)
    document = read(attested, SBOM)
    assert document["metadata"]["component"]["licenses"] == [{"license": licence}]
    assert document["components"][0]["licenses"] == [{"license": licence}]
    text = (attested.folder / SBOM).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_environment_is_listed_as_what_it_is(harness: AttestationHarness) -> None:
    components = environment_of(harness.host.environment(), ["fake", "engine"])
    by_name = {one["name"]: one for one in components}
    assert all(one["scope"] == "excluded" for one in components)
    assert by_name["fake"]["properties"] == [{"name": "modelmill:tool", "value": "true"}]
    assert by_name["fake"]["licenses"] == [{"expression": "MIT"}]
    assert by_name["unlicensed"]["purl"] == "pkg:pypi/unlicensed@2.0%2Bcpu"
    assert "properties" not in by_name["unlicensed"]
    assert {one["type"] for one in components} == {"operating-system", "platform", "library"}


def test_the_environment_is_asked_for_once(
    harness: AttestationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([harness.host.environment()])
    monkeypatch.setattr(harness.host, "environment", lambda: next(answers))
    attester = Attester(harness.host)
    for cell in plan_model().cells:
        attester.attest(harness.builder.build(cell), cell)
    assert not list(answers)


# -- beside the package, not part of it


def test_the_tree_is_the_same_with_and_without(harness: AttestationHarness) -> None:
    cell = make_cell()
    bare = harness.builder.build(cell)
    built = Attester(harness.host, sign=lambda data: b"signed " + data).attest(bare, cell)
    assert {PROVENANCE, SBOM, SIGNATURE} == set(digests(built)) - set(digests(bare))
    assert tree_digest(file.entry for file in built.files) == bare.tree == built.tree
    assert (built.folder / SIGNATURE).read_bytes() == (
        b"signed " + (built.folder / PROVENANCE).read_bytes()
    )


def test_attesting_again_replaces_what_was_stated(harness: AttestationHarness) -> None:
    cell = make_cell()
    once = Attester(harness.host, builder="one:", sign=lambda data: data).attest(
        harness.builder.build(cell), cell
    )
    again = Attester(harness.host, builder="two:").attest(once, cell)
    assert "two:" in (again.folder / PROVENANCE).read_text()
    assert SIGNATURE not in digests(again)
    assert len(digests(again)) == len(again.files)


def test_an_export_is_attested_like_a_cell(harness: AttestationHarness) -> None:
    cell = make_cell(components=["enc", "dec"])
    exported = harness.builder.build(cell, export_version="0.0.0-x-export")
    built = Attester(harness.host).attest(exported, replace(cell, version="0.0.0-x-export"))
    text = (built.folder / SBOM).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert json.loads(text)["metadata"]["component"]["name"] == "tiny/model:fill-mask@export"
    definition = read(built, PROVENANCE)["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["kind"] == "export"
    assert [one["name"] for one in definition["resolvedDependencies"]] == ["source", "fake"]


def test_a_disk_that_fails_costs_one_cell(harness: AttestationHarness) -> None:
    cell = make_cell()
    built = harness.builder.build(cell)
    remove_tree(built.folder)
    with pytest.raises(BuildFailed) as caught:
        Attester(harness.host).attest(built, cell)
    assert caught.value.failure is FailureClass.DISK


# -- the recipe


def test_a_recipe_gives_the_cell_back() -> None:
    for cell in plan_model(salt="x", components=["a"]).cells:
        recipe = json.loads(json.dumps(recipe_of(cell, allow=ALLOW)))
        again = cell_of(recipe, timeout=cell.timeout)
        assert again == replace(cell, publish_timeout=cell.timeout)


def test_a_folder_is_given_its_place_on_this_machine() -> None:
    cell = make_cell()
    source = Source(SourceKind.FOLDER, "/there/weights")
    recipe = recipe_of(replace(cell, model=replace(cell.model, source=source)), allow=ALLOW)
    assert cell_of(recipe, timeout=1).model.source.ref == "weights"
    assert cell_of(recipe, timeout=1, folder="/here/w").model.source.ref == "/here/w"


def test_what_was_not_permitted_is_not_in_the_recipe(harness: AttestationHarness) -> None:
    cell = make_cell()
    willing = replace(cell, model=replace(cell.model, remote_code=True, pickle=True))
    attester = Attester(harness.host, allow={"pickle": True})
    built = attester.attest(harness.builder.build(cell), willing)
    definition = read(built, PROVENANCE)["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["allow"] == {"remote_code": False, "pickle": True}


@pytest.mark.parametrize("broken", [{}, {"model": {}}, {"model": 3, "allow": None}])
def test_what_is_no_recipe_is_an_error(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        cell_of(broken, timeout=1)

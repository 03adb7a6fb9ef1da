"""Verification must find every byte and every statement that was changed after the build."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed.errors import NotFound, UnsafePath
from feed.verdict import Verdict
from feed.verify import verify_folder, verify_published
from machine.files import unlink
from matrix.digest import PROVENANCE, SBOM, SIGNATURE
from matrix.errors import UsageError
from tests.fakes.attested import AttestationHarness, publish, rewritten
from tests.fakes.feed import MemoryFeed
from tests.plans.cells import make_cell
from workers.attest.attester import Attester

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AttestationHarness]:
    made = AttestationHarness(tmp_path / "works")
    yield made
    made.close()


@pytest.fixture
def package(harness: AttestationHarness, tmp_path: Path) -> Path:
    """A pulled package, its files its own."""
    built = harness.attested(make_cell(label="qnn_npu", precision="w8a16"))
    return Path(shutil.copytree(built.folder, tmp_path / "package"))


def change(folder: Path, name: str, how: Change) -> None:
    value = json.loads((folder / name).read_bytes())
    how(value)
    (folder / name).write_text(json.dumps(value))


def problems(verdict: Verdict) -> str:
    assert verdict.ok == (not verdict.problems)
    return "\n".join(verdict.problems)


def test_a_package_as_it_was_built_is_fine(package: Path) -> None:
    verdict = verify_folder(package)
    assert verdict.ok
    assert [check.name for check in verdict.checks] == ["content", PROVENANCE, SBOM, "signature"]
    assert verdict.checks[-1].note == "not signed"


def test_the_digests_of_an_engines_code_are_no_distributions(
    harness: AttestationHarness,
) -> None:
    built = harness.builder.build(make_cell())
    tools = {**built.manifest["engine"]["tools"], "engine.export": "0" * 64}
    manifest = {**built.manifest, "engine": {"name": "fake", "tools": tools}}
    changed = rewritten(replace(built, manifest=manifest))
    assert verify_folder(Attester(harness.host).attest(changed, make_cell()).folder).ok


def test_a_changed_file_is_found_by_all_three(package: Path) -> None:
    (package / "model.onnx").write_bytes(b"another")
    found = problems(verify_folder(package))
    for name in ("content", PROVENANCE, SBOM):
        assert f"{name}: model.onnx does not match its listed digest" in found


def test_a_file_that_was_added_or_taken_away_is_found(package: Path) -> None:
    (package / "extra.bin").write_bytes(b"x")
    assert "extra.bin is present but not listed" in problems(verify_folder(package))
    unlink(package / "extra.bin")
    unlink(package / "model.onnx")
    assert "model.onnx is listed but missing" in problems(verify_folder(package))


def test_the_build_record_and_the_sbom_are_covered_too(package: Path) -> None:
    change(package, "build.json", lambda record: record.update(stamp="forged"))
    change(package, SBOM, lambda document: document.update(version=2))
    found = problems(verify_folder(package))
    assert f"{PROVENANCE}: build.json does not match" in found
    assert f"{PROVENANCE}: {SBOM} does not match" in found


def test_a_manifest_that_was_changed_with_its_list_is_found(package: Path) -> None:
    change(package, "modelmill.json", lambda manifest: manifest["model"].update(id="other/model"))
    found = problems(verify_folder(package))
    assert f"{PROVENANCE}: modelmill.json does not match" in found
    assert "names another model" in found


def _definition(stated: dict[str, Any]) -> dict[str, Any]:
    definition: dict[str, Any] = stated["predicate"]["buildDefinition"]
    return definition


def _external(stated: dict[str, Any]) -> dict[str, Any]:
    external: dict[str, Any] = _definition(stated)["externalParameters"]
    return external


def _internal(stated: dict[str, Any]) -> dict[str, Any]:
    internal: dict[str, Any] = _definition(stated)["internalParameters"]
    return internal


def _run(stated: dict[str, Any]) -> dict[str, Any]:
    run: dict[str, Any] = stated["predicate"]["runDetails"]
    return run


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda s: s.update(_type="x"), "its _type is 'x'"),
        (lambda s: s.update(predicateType="y"), "its predicateType is 'y'"),
        (lambda s: _definition(s).update(buildType="z"), "its buildType is 'z'"),
        (lambda s: s.update(subject=[]), "no subject"),
        (lambda s: s["subject"].pop(), "is present but not listed"),
        (lambda s: s["subject"][0].update(name="../../etc/passwd"), "listed but missing"),
        (lambda s: s.pop("subject"), "its subject cannot be read"),
        (lambda s: s.update(predicate=[]), "cannot be read"),
        (lambda s: s.update(subject=3), "cannot be read"),
        (
            lambda s: _definition(s)["resolvedDependencies"][0]["digest"].update(sha256="0" * 64),
            "another source",
        ),
        (lambda s: _definition(s)["resolvedDependencies"].pop(1), "another export"),
        (lambda s: _definition(s)["internalParameters"]["stages"].pop(), "another stages"),
        (lambda s: _definition(s)["externalParameters"].update(engine="evil"), "another engine"),
        (lambda s: _definition(s)["externalParameters"].update(cell="x"), "another cell"),
        (lambda s: _definition(s).update(externalParameters=None), "cannot be read"),
        (lambda s: _external(s)["model"].update(task="x"), "another model"),
        (lambda s: _external(s)["policy"].update(opset=99), "another policy"),
        (lambda s: _external(s)["policy"].pop("shapes"), "another policy"),
        (lambda s: _external(s)["target"].update(provider="x"), "another target"),
        (lambda s: _definition(s)["resolvedDependencies"][-1].update(uri="x"), "another tools"),
        (lambda s: _definition(s)["resolvedDependencies"].pop(), "another tools"),
        (lambda s: _internal(s)["stages"][0].update(tree="0" * 64), "another stages"),
        (lambda s: _internal(s).update(stamp="20990101"), "another stamp"),
        (lambda s: _internal(s).update(attempt=7), "another attempt"),
        (lambda s: _run(s)["builder"]["version"].update(python="2.7"), "another Python"),
        (lambda s: _run(s)["metadata"].update(startedOn="1999-01-01T00:00:00Z"), "another begin"),
        (lambda s: _run(s)["metadata"].update(startedOn="soon"), "cannot be read"),
    ],
)
def test_a_statement_that_is_not_true_is_found(package: Path, how: Change, says: str) -> None:
    change(package, PROVENANCE, how)
    assert says in problems(verify_folder(package))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda d: d.update(bomFormat="SPDX"), "not a CycloneDX document"),
        (lambda d: d["components"].pop(0), "another source"),
        (lambda d: d["components"][0]["hashes"][0].update(content="0" * 64), "another source"),
        (lambda d: d["components"].pop(1), "is present but not listed"),
        (lambda d: d.update(components=[{"type": "file"}]), "cannot be read"),
        (lambda d: d["components"][1].update(hashes=[]), "cannot be read"),
    ],
)
def test_a_bill_of_materials_that_is_not_true_is_found(
    package: Path, how: Change, says: str
) -> None:
    change(package, SBOM, how)
    assert says in problems(verify_folder(package))


@pytest.mark.parametrize("name", ["modelmill.json", PROVENANCE, SBOM])
@pytest.mark.parametrize("rubbish", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_rubbish_is_a_problem_and_no_crash(package: Path, name: str, rubbish: bytes) -> None:
    (package / name).write_bytes(rubbish)
    assert f"{name}: not" in problems(verify_folder(package))


def test_an_older_package_without_attestations_is_told(package: Path) -> None:
    (package / PROVENANCE).unlink()
    (package / SBOM).unlink()
    verdict = verify_folder(package)
    assert [check.name for check in verdict.checks if check.problems] == [PROVENANCE]


def test_a_folder_that_is_no_package_or_holds_links(package: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        verify_folder(tmp_path / "absent")
    (package / "link").symlink_to(package / "model.onnx")
    with pytest.raises(UnsafePath):
        verify_folder(package)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "nothing states what this is" in problems(verify_folder(empty))


# -- signatures: what they are is told by the caller


def seal(statement: bytes) -> bytes:
    """The form of an envelope; nobody signs it."""
    return json.dumps({"payload": base64.b64encode(statement).decode()}).encode() + b"\n"


def test_a_signature_is_checked_over_the_very_bytes_of_the_statement(
    harness: AttestationHarness, tmp_path: Path
) -> None:
    built = harness.attested(make_cell(), sign=seal)

    def check(envelope: bytes, statement: bytes) -> None:
        if envelope != seal(statement):
            raise UsageError("broken seal")

    assert verify_folder(built.folder, signature=check).ok
    assert "not checked" in verify_folder(built.folder).checks[-1].note
    folder = Path(shutil.copytree(built.folder, tmp_path / "copy"))
    (folder / PROVENANCE).write_bytes((folder / PROVENANCE).read_bytes() + b" ")
    assert problems(verify_folder(folder, signature=check)) == "signature: broken seal"
    (folder / SIGNATURE).unlink()
    assert "signature: the package is not signed" in problems(
        verify_folder(folder, signature=check)
    )


@pytest.mark.parametrize(
    "envelope",
    [b"", b"{}", b"[]", b'{"payload": 3}', b'{"payload": "!"}', b"\xff", b'{"payload": ""}'],
)
def test_without_a_key_a_signature_must_at_least_be_of_this_package(
    harness: AttestationHarness, tmp_path: Path, envelope: bytes
) -> None:
    built = harness.attested(make_cell(), sign=lambda _statement: envelope)
    (found,) = verify_folder(built.folder).problems
    assert found.startswith("signature: ")


def test_a_changed_statement_is_found_without_a_key_if_it_was_signed(
    harness: AttestationHarness,
) -> None:
    built = harness.attested(make_cell(), sign=seal)
    change(
        built.folder, PROVENANCE, lambda s: s["predicate"]["runDetails"]["builder"].update(id="x:y")
    )
    assert problems(verify_folder(built.folder)) == f"signature: what is signed is not {PROVENANCE}"


# -- every file beside a package, one by one


@pytest.mark.parametrize("name", ["build.json", SBOM, PROVENANCE, SIGNATURE])
@pytest.mark.parametrize("how", ["one byte", "emptied", "gone", "another package's"])
def test_a_tampered_file_beside_a_package_is_named_in_one_line(
    harness: AttestationHarness, tmp_path: Path, name: str, how: str
) -> None:
    built = harness.attested(make_cell(), sign=seal)
    folder = Path(shutil.copytree(built.folder, tmp_path / "package"))
    other = harness.attested(make_cell("other/model"), sign=seal).folder / name
    data = (folder / name).read_bytes()
    (folder / name).unlink()
    if how == "one byte":
        (folder / name).write_bytes(data.replace(b"e", b"E", 1) if name != SIGNATURE else data[5:])
    elif how != "gone":
        (folder / name).write_bytes(b"" if how == "emptied" else other.read_bytes())

    def check(envelope: bytes, statement: bytes) -> None:
        if envelope != seal(statement):
            raise UsageError("broken seal")

    verdict = verify_folder(folder, signature=check)
    assert not verdict.ok
    lines = [
        line for line in verdict.problems if name in line or "seal" in line or "signed" in line
    ]
    assert lines
    assert all(len(line.splitlines()) == 1 for line in verdict.problems)


def test_names_that_are_meant_for_a_terminal_do_not_reach_it(package: Path) -> None:
    evil = "\x1b[2J\nok  modelmill-other 1.0: 9 files" + "x" * 500

    def rename(stated: dict[str, Any]) -> None:
        stated["subject"][0]["name"] = evil

    change(package, PROVENANCE, rename)
    found = verify_folder(package).problems
    assert any("is listed but missing" in line for line in found)
    assert all(line.isprintable() and len(line) < 300 for line in found)


# -- out of a feed


def test_a_published_package_is_fetched_and_verified(
    harness: AttestationHarness, tmp_path: Path
) -> None:
    feed, cell = MemoryFeed(), make_cell()
    built = harness.publish(feed, cell)
    verdict = verify_published(feed, cell.package, cell.version, tmp_path / "it")
    assert (verdict.ok, verdict.tree, verdict.files) == (True, built.tree, len(built.files))
    assert (verdict.package, verdict.version) == (cell.package, cell.version)
    assert (verdict.kind, verdict.signed) == ("cell", False)


def test_a_package_under_another_version_is_found(
    harness: AttestationHarness, tmp_path: Path
) -> None:
    feed, cell = MemoryFeed(), make_cell()
    publish(feed, harness.attested(cell), cell.package, "0.0.0-other")
    found = problems(verify_published(feed, cell.package, "0.0.0-other", tmp_path / "it"))
    assert found == f"{PROVENANCE}: it is about {cell.package} {cell.version}"


def test_an_export_verifies_like_a_cell(harness: AttestationHarness) -> None:
    cell = make_cell(components=["enc"])
    exported = harness.builder.build(cell, export_version="0.0.0-export")
    named = replace(cell, version="0.0.0-export")
    assert verify_folder(Attester(harness.host).attest(exported, named).folder).ok

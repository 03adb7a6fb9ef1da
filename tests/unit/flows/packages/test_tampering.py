"""Whoever can write to a feed changes packages in every way: who takes one refuses it.

With a key everything is refused. Without one, all that digests can show: only who makes a whole
package anew, its statement included, is not found out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from feed.directory import DirectoryFeed
from feed.interface import write_description
from feed.layout import Layout, Manifest
from feed.reader import pull
from feed.verify import verify_folder, verify_published
from flows.compile.plans import Wanted, plans_of
from flows.packages import rebuild as rebuilding
from flows.packages.promotion import promote
from flows.packages.published import fetch_portable
from flows.packages.rebuild import rebuild
from flows.packages.reverify import opened_package
from flows.packages.run_records import statement_files, write_files
from flows.packages.signing import signature_check, signer_of
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from machine.files import unlink
from matrix.digest import PROVENANCE, SBOM, SIGNATURE, LocalFile, tree_digest
from matrix.errors import MillError
from matrix.model import Cell, Profile
from tests.fakes.attested import AttestationHarness, rewritten
from tests.plans.cells import make_cell
from tests.signing.keys import write_keys
from workers.attest.attester import Attester
from workers.build.built import Built
from workers.build.package import entry_of

Contents = dict[str, bytes]
MODEL, MANIFEST, RECORD = "model.onnx", "modelmill.json", "build.json"
SAMPLE, RESULT = "samples/00.npz", "samples/00.out.npz"
PROFILE = Profile("htp73", "qnn_npu", "qnn", {"htp_arch": "73"})
CELL = make_cell(label="qnn_npu", precision="w8a16")
NAME = (CELL.package, CELL.version)
COMMANDS = ("pull", "feed verify", "verify", "promote", "compile", "rebuild")
UNSTATED = frozenset({"pull", "verify"})
"""The commands that take, without a key, what states nothing of itself."""


@dataclass(frozen=True)
class Works:
    """Packages as they were built and signed, by what they are."""

    good: Contents
    older: Contents
    other: Contents
    export: Contents
    index: Contents
    forged: Contents
    """Flipped weights in a package that is whole in itself, but for the signature."""
    foreign: Contents
    """The same, signed with another key."""
    bare: Contents
    """A cell without evidence that is called an export, whole in itself."""
    key: Path


def contents_of(built: Built) -> Contents:
    return {file.entry.path: file.source.read_bytes() for file in built.files}


def settings_in(folder: Path, **flags: Any) -> Settings:
    return resolve({"feed": str(folder / "feed"), **flags}, {}, folder)


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Works:
    folder = tmp_path_factory.mktemp("works")
    key, foreign = write_keys(folder), write_keys(folder, "foreign")
    signing = settings_in(folder, sign_key=str(key))
    harness = AttestationHarness(folder)
    sign, theirs = signer_of(signing), signer_of(settings_in(folder, sign_key=str(foreign)))

    def made(cell: Cell, **how: Any) -> Contents:
        built = harness.builder.build(cell)
        place = built.folder / RESULT
        place.write_bytes(cell.id.encode())
        added = LocalFile(entry_of(RESULT, place.read_bytes()), place)
        judged = replace(built, files=(*built.files, added))
        return contents_of(Attester(harness.host, **how).attest(judged, cell))

    def changed(how: Callable[[Built], Built], **way: Any) -> Contents:
        built = rewritten(how(harness.builder.build(CELL)))
        return contents_of(Attester(harness.host, **way).attest(built, CELL))

    def flipped(built: Built) -> Built:
        path = built.folder / MODEL
        data = flip(path.read_bytes())
        unlink(path)
        path.write_bytes(data)
        entry = entry_of(MODEL, data)
        files = tuple(
            replace(one, entry=entry) if one.entry.path == MODEL else one for one in built.files
        )
        listed = [
            {"path": MODEL, "size": entry.size, "sha256": entry.sha256}
            if one["path"] == MODEL
            else one
            for one in built.manifest["files"]
        ]
        return replace(built, files=files, manifest={**built.manifest, "files": listed})

    index = folder / "index"
    index.mkdir()
    cells = write_files(index, {"index.json": b'{"format": 1, "stamp": "20260609", "cells": []}'})
    stated = statement_files(signing, "index", "modelmill-index", "0.0.0-1", cells, index)
    exported = harness.builder.build(CELL, export_version="0.0.0-20260609-export-tiny-model")
    named = replace(CELL, version="0.0.0-20260609-export-tiny-model")
    found = Works(
        good=made(CELL, sign=sign),
        older=made(replace(CELL, version=CELL.version.replace("0609", "0501")), sign=sign),
        other=made(make_cell("other/model", "qnn_npu", precision="w8a16"), sign=sign),
        export=contents_of(Attester(harness.host, sign=sign).attest(exported, named)),
        index={one.entry.path: one.source.read_bytes() for one in (*cells, *stated)},
        forged=changed(flipped),
        foreign=changed(flipped, sign=theirs),
        bare=changed(lambda built: replace(built, manifest={**built.manifest, "kind": "export"})),
        key=key.with_suffix(".pub"),
    )
    harness.close()
    return found


def hold(folder: Path, contents: Mapping[str, bytes], tree: str = "") -> DirectoryFeed:
    """A feed with these contents under the name of the good package; every digest that the feed
    itself keeps is right."""
    feed = DirectoryFeed(folder / "feed")
    feed.preflight()
    layout, files = Layout(folder / "feed"), []
    for path, data in contents.items():
        entry = entry_of(path, data)
        files.append(entry)
        blob = layout.blob(entry.sha256)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
    described = write_description(tree or tree_digest(files), CELL.id)
    manifest = Manifest(*NAME, described, datetime(2026, 6, 9, tzinfo=UTC), tuple(sorted(files)))
    place = layout.manifest(*NAME)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(manifest.to_json())
    return feed


class Taken(Exception):
    """A command has taken the package."""


def take(command: str, folder: Path, feed: DirectoryFeed, settings: Settings) -> None:
    """Let a command read the package. Raises `MillError` if it refuses, and before it builds."""
    check = signature_check(settings)
    if command == "pull":
        pull(feed, *NAME, folder / "pulled", signature=check)
    elif command == "feed verify":
        verdict = verify_published(feed, *NAME, folder / "verified", signature=check)
        if not verdict.ok:
            raise MillError(verdict.problems[0])
    elif command == "verify":
        with opened_package(settings, *NAME, None, None):
            return
    elif command == "promote":
        promote(settings, feed, *NAME, "prerelease")
    elif command == "compile":
        published = feed.find(*NAME)
        assert published is not None
        (plan,) = plans_of(feed, Wanted(settings, (PROFILE,)), [published], None)
        (cell,) = plan.cells()
        fetch_portable(settings, cell, folder / "fetched")
    else:
        rebuild(feed, *NAME, settings, {})


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def edit(name: str, how: Callable[[dict[str, Any]], object]) -> Callable[[Contents, Works], None]:
    """Change a JSON file, and nothing else."""

    def change(contents: Contents, _works: Works) -> None:
        value = json.loads(contents[name])
        how(value)
        contents[name] = json.dumps(value).encode()

    return change


def put(name: str, data: bytes | Callable[[bytes], bytes]) -> Callable[[Contents, Works], None]:
    def change(contents: Contents, _works: Works) -> None:
        contents[name] = data if isinstance(data, bytes) else data(contents[name])

    return change


def drop(*names: str) -> Callable[[Contents, Works], None]:
    def change(contents: Contents, _works: Works) -> None:
        for name in names:
            del contents[name]

    return change


def take_from(which: str, *names: str) -> Callable[[Contents, Works], None]:
    """Replace files by those of another package; without names, all."""

    def change(contents: Contents, works: Works) -> None:
        source: Contents = getattr(works, which)
        if not names:
            contents.clear()
        contents.update({name: source[name] for name in names or source})

    return change


def flipped_and_listed(contents: Contents, _works: Works) -> None:
    """Flip the weights and correct the manifest's list of them."""
    contents[MODEL] = flip(contents[MODEL])
    value = json.loads(contents[MANIFEST])
    for one in value["files"]:
        if one["path"] == MODEL:
            one["sha256"] = entry_of(MODEL, contents[MODEL]).sha256
    contents[MANIFEST] = json.dumps(value).encode()


def renamed(contents: Contents, _works: Works) -> None:
    contents["weights.onnx"] = contents.pop(MODEL)


def another_payload(contents: Contents, _works: Works) -> None:
    """Statement and payload changed alike: the signature is of neither."""
    stated = json.loads(contents[PROVENANCE])
    stated["predicate"]["runDetails"]["builder"]["id"] = "https://example.org/mill"
    data = json.dumps(stated).encode()
    envelope = json.loads(contents[SIGNATURE])
    envelope["payload"] = base64.b64encode(data).decode()
    contents |= {PROVENANCE: data, SIGNATURE: json.dumps(envelope).encode()}


def external(stated: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = stated["predicate"]["buildDefinition"]["externalParameters"]
    return found


def without_subject(stated: dict[str, Any]) -> None:
    stated["subject"] = [one for one in stated["subject"] if one["name"] != MODEL]


def as_a_record(stated: dict[str, Any]) -> None:
    stated["predicate"]["buildDefinition"]["buildType"] = "urn:modelmill:record:v1"
    external(stated)["kind"] = "index"


def of_a_commit(manifest: dict[str, Any]) -> None:
    manifest["source"]["commit"] = "f" * 40


WAIVED = {"rules": {"waive": {"ep": "nobody minds"}}}
EVERYTHING = frozenset(COMMANDS)
NOTHING: frozenset[str] = frozenset()

TAMPERED: dict[str, tuple[Callable[[Contents, Works], None], frozenset[str]]] = {
    "flipped weights": (put(MODEL, flip), NOTHING),
    "truncated weights": (put(MODEL, lambda data: data[:-1]), NOTHING),
    "empty weights": (put(MODEL, b""), NOTHING),
    "weights of another package": (
        lambda contents, works: contents.update({MODEL: works.other[MODEL] + b"other"}),
        NOTHING,
    ),
    "no weights": (drop(MODEL), NOTHING),
    "renamed weights": (renamed, NOTHING),
    "flipped and listed weights": (flipped_and_listed, NOTHING),
    "an unlisted file": (put("extra.bin", b"x"), NOTHING),
    "an unlisted program": (put("modeling_tiny.py", b"import os"), NOTHING),
    "an unlisted file below": (put("1_Pooling/config.json", b"{}"), NOTHING),
    "an unlisted sample": (put("samples/00.npz", b"x"), NOTHING),
    "an unlisted result of the reference": (put("samples/99.out.npz", b"x"), NOTHING),
    "another result of the reference": (put(RESULT, b"x"), NOTHING),
    "no result of the reference": (drop(RESULT), NOTHING),
    "another sample": (put(SAMPLE, flip), NOTHING),
    "no sample": (drop(SAMPLE), NOTHING),
    "an index.json": (put("index.json", b'{"format": 1, "stamp": "1", "cells": []}'), NOTHING),
    "an index.json in place of the manifest": (
        lambda contents, _works: contents.update({"index.json": contents.pop(MANIFEST)}),
        NOTHING,
    ),
    "a manifest of another model": (
        edit(MANIFEST, lambda value: value["model"].update(id="evil/model")),
        NOTHING,
    ),
    "kind: export": (edit(MANIFEST, lambda value: value.update(kind="export")), NOTHING),
    "an export without evidence": (
        lambda contents, works: (
            edit(MANIFEST, lambda value: value.update(kind="export"))(contents, works),
            edit(RECORD, lambda value: value.update(verification=[]))(contents, works),
        )[0],
        NOTHING,
    ),
    "a manifest without files": (edit(MANIFEST, lambda value: value.update(files=[])), NOTHING),
    "a manifest that is rubbish": (put(MANIFEST, b"\xff"), NOTHING),
    "no manifest": (drop(MANIFEST), NOTHING),
    "the manifest of another package": (take_from("other", MANIFEST), NOTHING),
    "another export": (
        edit(MANIFEST, lambda value: value["export"].update(tree="0" * 64)),
        NOTHING,
    ),
    "another commit": (edit(MANIFEST, of_a_commit), NOTHING),
    "another policy": (
        edit(MANIFEST, lambda value: value["policy"].update(precision="fp32")),
        NOTHING,
    ),
    "better evidence": (
        edit(RECORD, lambda value: value.update(verification=[{"name": "parity", "passed": True}])),
        NOTHING,
    ),
    "a waiver": (edit(RECORD, lambda value: value.update(WAIVED)), NOTHING),
    "another version in the build record": (
        edit(RECORD, lambda value: value.update(version="0.0.0-1")),
        NOTHING,
    ),
    "no build record": (drop(RECORD), NOTHING),
    "the build record of another package": (take_from("other", RECORD), NOTHING),
    "no bill of materials": (drop(SBOM), NOTHING),
    "an edited bill of materials": (edit(SBOM, lambda value: value.update(version=2)), NOTHING),
    "the bill of materials of another package": (take_from("other", SBOM), NOTHING),
    "provenance that is rubbish": (put(PROVENANCE, b"{"), NOTHING),
    "provenance of another package": (take_from("other", PROVENANCE), NOTHING),
    "provenance and signature of another package": (
        take_from("other", PROVENANCE, SIGNATURE),
        NOTHING,
    ),
    "provenance without the weights": (edit(PROVENANCE, without_subject), NOTHING),
    "provenance of another name": (
        edit(PROVENANCE, lambda value: external(value).update(package="modelmill-other")),
        NOTHING,
    ),
    "provenance of another version": (
        edit(PROVENANCE, lambda value: external(value).update(version="0.0.0-1")),
        NOTHING,
    ),
    "provenance of another kind": (
        edit(PROVENANCE, lambda value: external(value).update(kind="export")),
        NOTHING,
    ),
    "provenance of a record": (edit(PROVENANCE, as_a_record), NOTHING),
    "provenance of another source": (
        edit(
            PROVENANCE,
            lambda value: external(value)["model"]["source"].update(ref="evil/model"),
        ),
        NOTHING,
    ),
    "a signature that is rubbish": (put(SIGNATURE, b"{}"), NOTHING),
    "a signature of another package": (take_from("other", SIGNATURE), NOTHING),
    "a signature of the older version": (take_from("older", SIGNATURE), NOTHING),
    "another package": (take_from("other"), NOTHING),
    "an older version": (take_from("older"), NOTHING),
    "an export": (take_from("export"), NOTHING),
    "an index": (take_from("index"), NOTHING),
    "a cell that is called an export": (take_from("bare"), NOTHING),
    # What states nothing of itself is only taken by who asks for no statement.
    "no provenance": (drop(PROVENANCE, SIGNATURE), UNSTATED),
    # From here on the feed shows nothing that contradicts itself.
    "no signature": (drop(SIGNATURE), EVERYTHING),
    "another payload": (another_payload, EVERYTHING),
    "a package that is made anew": (take_from("forged"), EVERYTHING),
    "a package that is signed by others": (take_from("foreign"), EVERYTHING),
}
"""What is done to a package, and the commands that cannot tell without a key."""


@pytest.fixture(autouse=True)
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_args: Any) -> Any:
        raise Taken

    monkeypatch.setattr(rebuilding, "_build", built)


@pytest.fixture(params=[False, True], ids=["without a key", "with a key"])
def keyed(request: pytest.FixtureRequest, works: Works, tmp_path: Path) -> Settings:
    """Settings of whoever takes packages."""
    return settings_in(tmp_path, **({"key": str(works.key)} if request.param else {}))


@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_not_touched_is_taken(
    works: Works, keyed: Settings, tmp_path: Path, command: str
) -> None:
    feed = hold(tmp_path, works.good)
    if command == "rebuild":
        with pytest.raises(Taken):
            take(command, tmp_path, feed, keyed)
    else:
        take(command, tmp_path, feed, keyed)


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_is_refused(
    works: Works, keyed: Settings, tmp_path: Path, what: str
) -> None:
    tamper, unseen = TAMPERED[what]
    contents = dict(works.good)
    tamper(contents, works)
    assert contents != works.good
    feed = hold(tmp_path, contents)
    for command in COMMANDS:
        if keyed.key is None and command in unseen:
            continue
        with pytest.raises(MillError) as refused:
            take(command, tmp_path, feed, keyed)
        assert len(refused.value.message.splitlines()) == 1, command
    published = feed.find(*NAME)
    assert published is not None
    assert keyed.key is None or published.views == ()
    assert not (keyed.key and (tmp_path / "pulled").exists())


@pytest.mark.parametrize("command", COMMANDS)
def test_bytes_that_changed_under_their_digest_are_refused(
    works: Works, keyed: Settings, tmp_path: Path, command: str
) -> None:
    """The feed's own list is right, and so is what the package states: only who reads sees it."""
    feed = hold(tmp_path, works.good)
    blob = Layout(tmp_path / "feed").blob(entry_of(MODEL, works.good[MODEL]).sha256)
    blob.write_bytes(b"EVIL" * 8)
    with pytest.raises(MillError):
        take(command, tmp_path, feed, keyed)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_description_that_promises_another_content_is_refused(
    works: Works, keyed: Settings, tmp_path: Path, command: str
) -> None:
    feed = hold(tmp_path, works.good, "0" * 64)
    with pytest.raises(MillError):
        take(command, tmp_path, feed, keyed)


@pytest.mark.parametrize("what", ["no signature", "a package that is signed by others"])
def test_who_signs_compiles_only_what_is_signed(works: Works, tmp_path: Path, what: str) -> None:
    contents = dict(works.good)
    TAMPERED[what][0](contents, works)
    signs = settings_in(tmp_path, sign_key=str(works.key.with_suffix(".pem")))
    with pytest.raises(MillError, match="signed"):
        take("compile", tmp_path, hold(tmp_path, contents), signs)
    take("compile", tmp_path, hold(tmp_path, works.good), signs)


@pytest.mark.parametrize("what", TAMPERED)
def test_the_same_in_a_folder(works: Works, tmp_path: Path, what: str) -> None:
    contents = dict(works.good)
    TAMPERED[what][0](contents, works)
    check = signature_check(settings_in(tmp_path, key=str(works.key)))
    for name, data in contents.items():
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(data)
    assert not verify_folder(tmp_path / "here", name=NAME, signature=check).ok

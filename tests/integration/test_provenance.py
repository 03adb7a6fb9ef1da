"""A sweep whose packages are signed, verified, tampered with and built again: the real command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.signing.keys import write_keys
from tests.sweeps.command import Project, model

STAMP = "20260609"
PACKAGE = "modelmill-tiny-a"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two cells and their export, signed; nobody may change what is in its feed."""
    project = Project(tmp_path_factory.mktemp("swept"))
    key = write_keys(project.folder)
    catalog = project.catalog(model(files={"config.json": "{}"}, components=["enc", "dec"]))
    selection = ("--target", "qnn_npu,mlas_cpu", "--stamp", STAMP)
    project.ok("sweep", catalog, *selection, "--sign-key", key.name)
    return project


def blob(project: Project, version: str, name: str) -> Path:
    entry = next(one for one in project.feed().files(PACKAGE, version) if one.path == name)
    return next(path for path in project.feed_folder.rglob("*") if path.name == entry.sha256)


def versions(project: Project) -> list[str]:
    return sorted(version for package, version in project.published() if package == PACKAGE)


def test_every_package_of_a_sweep_verifies_with_the_key(swept: Project) -> None:
    verified = swept.ok("feed", "verify", "modelmill-*", "--key", "key.pub", "--json").lines()
    assert len(verified) == len(swept.published()) == 4
    assert all(one["ok"] for one in verified)
    other = write_keys(swept.folder, "other")
    refused = swept.run("feed", "verify", PACKAGE, "--key", other.with_suffix(".pub").name)
    assert refused.code == 1
    assert refused.out.count("not signed by that key") == 3


def test_a_key_that_is_none_is_told_before_anything_is_begun(project: Project) -> None:
    (project.folder / "key.pem").write_text("no key")
    ran = project.run("sweep", project.catalog(model()), "--sign-key", "key.pem")
    assert (ran.code, ran.out) == (2, "planning the sweep\n")
    assert "key.pem is not a private key in PEM" in ran.err
    assert not project.home.exists()


def test_no_key_and_no_place_of_this_machine_is_published(swept: Project) -> None:
    secret = (swept.folder / "key.pem").read_text().splitlines()[1]
    for version in versions(swept):
        for entry in swept.feed().files(PACKAGE, version):
            data = blob(swept, version, entry.path).read_bytes()
            assert str(swept.folder).encode() not in data
            assert secret.encode() not in data


def test_a_pulled_package_is_verified_where_it_is(swept: Project) -> None:
    version, other = versions(swept)[:2]
    verify, key = ("feed", "verify", "--folder", "here"), ("--key", "key.pub")
    pulled = swept.session(
        [
            ("feed", "pull", PACKAGE, version, "--dest", "here", *key),
            (*verify, PACKAGE, version, *key),
            verify,
            (*verify, PACKAGE, other, *key),
            (*verify, *key),
            ("feed", "verify"),
            ("feed", "verify", PACKAGE, "no-such*"),
        ]
    )
    assert [ran.code for ran in pulled] == [0, 0, 0, 1, 2, 2, 4], pulled
    assert f"{PACKAGE} {version} (signature: signed, not checked" in pulled[2].out
    assert f"it is about {PACKAGE} {version}" in pulled[3].out
    assert "say which version the folder must be" in pulled[4].err
    (swept.folder / "here" / "build.json").write_text("{}")
    (swept.folder / "here" / "provenance.intoto.jsonl").unlink()
    changed, unsigned = swept.session([verify, (*verify, PACKAGE, version, *key)])
    assert (changed.code, changed.err) == (1, "")
    assert changed.out.splitlines()[1:] == [
        "  provenance.json: build.json does not match its listed digest"
    ]
    assert unsigned.code == 1
    assert "signature: the package is not signed" in unsigned.out


def test_bytes_that_rot_in_the_feed_are_found(swept: Project, tmp_path: Path) -> None:
    project = Project(Path(shutil.copytree(swept.folder, tmp_path / "project")))
    version = next(one for one in versions(project) if "qnn" in one)
    rotten = blob(project, version, "enc/model.onnx")
    rotten.chmod(0o644)
    rotten.write_bytes(b"\0" * rotten.stat().st_size)
    found = project.run("feed", "verify", PACKAGE, version)
    assert found.code == 1
    assert "c/model.onnx: expected" in found.out


def test_a_package_is_built_again_byte_for_byte(swept: Project) -> None:
    listed = versions(swept)
    built = swept.session([("rebuild", PACKAGE, version, "--json") for version in listed])
    for version, ran in zip(listed, built, strict=True):
        assert (ran.code, ran.err) == (0, ""), ran
        found = ran.json()
        assert found["same"], found
        assert found["differences"] == []
        assert found["rebuilt"] == swept.published()[PACKAGE, version]
    assert not list(swept.home.glob("rebuild-*"))


def test_what_differs_is_told(swept: Project) -> None:
    version = next(one for one in versions(swept) if "mlas" in one)
    found = swept.run("rebuild", PACKAGE, version, FAKE_VERSION="2")
    assert (found.code, found.err) == (1, "")
    assert "engine.tools.fake: 1 -> 2" in found.out
    assert "stages.export.key" in found.out


def test_a_model_from_a_folder_is_built_again_from_wherever_the_folder_is(project: Project) -> None:
    weights = project.folder / "weights"
    weights.mkdir()
    (weights / "model.bin").write_bytes(b"one")
    entry = '[[model]]\nid = "tiny/a"\ntask = "fill-mask"\nfolder = "weights"\npriority = "P0"\n'
    project.ok("sweep", project.catalog(entry), "--target", "mlas_cpu", "--stamp", STAMP)
    (version,) = [one for one in versions(project) if "mlas" in one]
    rebuild = ("rebuild", PACKAGE, version)
    moved = weights.rename(project.folder / "elsewhere")
    shutil.copytree(moved, project.folder / "changed")
    (project.folder / "changed" / "model.bin").write_bytes(b"two")
    places = ("elsewhere", "changed", "nowhere")
    unsaid, same, changed, gone = project.session(
        [rebuild, *((*rebuild, "--source", place) for place in places)]
    )
    assert unsaid.code == 2
    assert "--source" in unsaid.err
    assert "the same bytes again" in same.out
    assert (changed.code, changed.err) == (1, "")
    assert "source.digest: " in changed.out
    assert "files.model.onnx: " in changed.out
    assert "engine.tools" not in changed.out
    assert (gone.code, gone.out) == (2, "fetching the package\n")
    assert "--source nowhere: there is no such folder" in gone.err


def test_what_cannot_be_built_again_is_told(swept: Project) -> None:
    index, absent = swept.session(
        [("rebuild", "modelmill-index", f"0.0.0-{STAMP}"), ("rebuild", PACKAGE, "0.0.0-none")]
    )
    assert index.code != 0
    assert "Traceback" not in index.err
    assert absent.code == 5
    assert json.dumps(absent.err).count("error:") == 1

"""A sweep whose packages are signed, verified, tampered with and built again: the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.sweeping import Mill, model
from tests.unit.flows.test_signing import write_keys

STAMP = "20260609"
PACKAGE = "modelmill-tiny-a"


@pytest.fixture
def swept(mill: Mill) -> Mill:
    key = write_keys(mill.folder)
    catalog = mill.catalog(model(files={"config.json": "{}"}, components=["enc", "dec"]))
    selection = ("--target", "qnn_npu,mlas_cpu", "--stamp", STAMP)
    mill.ok("sweep", catalog, *selection, "--sign-key", key.name)
    return mill


def blob(mill: Mill, version: str, name: str) -> Path:
    entry = next(one for one in mill.feed().files(PACKAGE, version) if one.path == name)
    return next(path for path in mill.feed_folder.rglob("*") if path.name == entry.sha256)


def versions(mill: Mill) -> list[str]:
    return sorted(version for package, version in mill.published() if package == PACKAGE)


def test_every_package_of_a_sweep_verifies_with_the_key(swept: Mill) -> None:
    verified = swept.ok("feed", "verify", "modelmill-*", "--key", "key.pub", "--json").lines()
    assert len(verified) == len(swept.published()) == 4
    assert all(one["ok"] for one in verified)
    other = write_keys(swept.folder, "other")
    refused = swept.run("feed", "verify", PACKAGE, "--key", other.with_suffix(".pub").name)
    assert refused.code == 1
    assert refused.out.count("not signed by that key") == 3


def test_a_key_that_is_none_is_told_before_anything_is_begun(mill: Mill) -> None:
    (mill.folder / "key.pem").write_text("no key")
    ran = mill.run("sweep", mill.catalog(model()), "--sign-key", "key.pem")
    assert (ran.code, ran.out) == (2, "")
    assert "key.pem is not a private key in PEM" in ran.err
    assert not mill.home.exists()


def test_no_key_and_no_place_of_this_machine_is_published(swept: Mill) -> None:
    secret = (swept.folder / "key.pem").read_text().splitlines()[1]
    for version in versions(swept):
        for entry in swept.feed().files(PACKAGE, version):
            data = blob(swept, version, entry.path).read_bytes()
            assert str(swept.folder).encode() not in data
            assert secret.encode() not in data


def test_a_pulled_package_is_verified_where_it_is(swept: Mill) -> None:
    version = versions(swept)[0]
    swept.ok("feed", "pull", PACKAGE, version, "--dest", "here")
    swept.ok("feed", "verify", "--folder", "here", "--key", "key.pub")
    (swept.folder / "here" / "build.json").write_text("{}")
    found = swept.run("feed", "verify", "--folder", "here")
    assert (found.code, found.err) == (1, "")
    assert "build.json has other bytes than are named" in found.out
    assert swept.run("feed", "verify").code == 2
    assert swept.run("feed", "verify", PACKAGE, "no-such*").code == 4


def test_bytes_that_rot_in_the_feed_are_found(swept: Mill) -> None:
    version = next(one for one in versions(swept) if "qnn" in one)
    rotten = blob(swept, version, "enc/model.onnx")
    rotten.chmod(0o644)
    rotten.write_bytes(b"\0" * rotten.stat().st_size)
    found = swept.run("feed", "verify", PACKAGE, version)
    assert found.code == 1
    assert "c/model.onnx: expected" in found.out


def test_a_package_is_built_again_byte_for_byte(swept: Mill) -> None:
    for version in versions(swept):
        found = swept.ok("rebuild", PACKAGE, version, "--json").json()
        assert found["same"], found
        assert found["differences"] == []
        assert found["rebuilt"] == swept.published()[PACKAGE, version]
    assert not list(swept.home.glob("rebuild-*"))


def test_what_differs_is_told(swept: Mill) -> None:
    version = next(one for one in versions(swept) if "mlas" in one)
    found = swept.run("rebuild", PACKAGE, version, FAKE_VERSION="2")
    assert (found.code, found.err) == (1, "")
    assert "engine.tools.fake: 1 -> 2" in found.out
    assert "stages.export.key" in found.out


def test_a_model_from_a_folder_is_built_again_from_wherever_the_folder_is(mill: Mill) -> None:
    weights = mill.folder / "weights"
    weights.mkdir()
    (weights / "model.bin").write_bytes(b"one")
    entry = '[[model]]\nid = "tiny/a"\ntask = "fill-mask"\nfolder = "weights"\npriority = "P0"\n'
    mill.ok("sweep", mill.catalog(entry), "--target", "mlas_cpu", "--stamp", STAMP)
    (version,) = [one for one in versions(mill) if "mlas" in one]
    unsaid = mill.run("rebuild", PACKAGE, version)
    assert unsaid.code == 2
    assert "--source" in unsaid.err
    moved = weights.rename(mill.folder / "elsewhere")
    same = mill.ok("rebuild", PACKAGE, version, "--source", "elsewhere")
    assert "the same bytes again" in same.out
    (moved / "model.bin").write_bytes(b"two")
    changed = mill.run("rebuild", PACKAGE, version, "--source", "elsewhere")
    assert (changed.code, changed.err) == (1, "")
    assert "source.digest: " in changed.out
    assert "files.model.onnx: " in changed.out
    assert "engine.tools" not in changed.out
    gone = mill.run("rebuild", PACKAGE, version, "--source", "nowhere")
    assert (gone.code, gone.out) == (2, "")
    assert "--source nowhere: there is no such folder" in gone.err


def test_what_cannot_be_built_again_is_told(swept: Mill) -> None:
    index = swept.run("rebuild", "modelmill-index", f"0.0.0-{STAMP}")
    assert index.code != 0
    assert "Traceback" not in index.err
    absent = swept.run("rebuild", PACKAGE, "0.0.0-none")
    assert absent.code == 5
    assert json.dumps(absent.err).count("modelmill:") == 1

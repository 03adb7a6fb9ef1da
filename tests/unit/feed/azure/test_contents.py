"""Pieces that need neither a network nor a process: sizes, lists, folders, options, platforms."""

from __future__ import annotations

import io
import json
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from feed.azure import open_azure
from feed.azure.contents import check_tree, package_sizes, read_list
from feed.azure.options import Options
from feed.azure.staging import Stage
from feed.azure.tool_cache import EXECUTABLE, release_query, unpack
from feed.checked import hash_file
from feed.errors import Corrupt, Unavailable
from feed.interface import LocalFile
from machine.files import files_below
from machine.scratch import claimed_folder
from matrix.digest import FileEntry, tree_digest
from matrix.errors import UsageError

ENTRIES = (FileEntry("a.onnx", 10, "0" * 64), FileEntry("sub/é.txt", 0, "1" * 64))


def test_the_registered_size_is_that_of_the_files_and_their_manifest() -> None:
    manifest = (
        '{"manifestFormat":"1.1.0","items":['
        '{"path":"/a.onnx","blob":{"id":"' + "A" * 64 + '01","size":10}},'
        '{"path":"/sub/é.txt","blob":{"id":"' + "B" * 64 + '02","size":0}}'
        '],"manifestReferences":[]}'
    )
    assert 10 + len(manifest.encode()) in package_sizes(ENTRIES)
    assert 10 + len(manifest.encode()) not in package_sizes(ENTRIES[:1])


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", [None, 1, 2, 4])
def test_the_white_space_of_a_manifest_does_not_matter(indent: int | None, line_end: str) -> None:
    items = [
        {"path": f"/{entry.path}", "blob": {"id": "A" * 64 + "01", "size": entry.size}}
        for entry in ENTRIES
    ]
    value = {"manifestFormat": "1.1.0", "items": items, "manifestReferences": []}
    manifest = json.dumps(value, indent=indent).replace("\n", line_end)
    assert 10 + len(manifest.encode()) in package_sizes(ENTRIES)
    assert 10 + len(manifest.encode()) not in package_sizes(ENTRIES[:1])


def test_the_list_of_a_manifest_is_read() -> None:
    items = [{"path": e.path, "size": e.size, "sha256": e.sha256} for e in ENTRIES]
    assert read_list(json.dumps({"files": items}).encode()) == ENTRIES
    for rubbish in (b"", b"[]", b"{}", b'{"files": [1]}', b'{"files": 3}', b'{"files": [{}]}'):
        with pytest.raises(ValueError, match=r".*"):
            read_list(rubbish)


def test_a_description_that_lies_is_found_out() -> None:
    check_tree("n", "v", f"tree=sha256:{tree_digest(ENTRIES)} x", ENTRIES)
    check_tree("n", "v", "by hand", ENTRIES)
    with pytest.raises(Corrupt):
        check_tree("n", "v", f"tree=sha256:{'0' * 64}", ENTRIES)


def test_a_stage_holds_exactly_the_files(tmp_path: Path) -> None:
    source = tmp_path / "blob"
    source.write_bytes(b"content")
    entry = hash_file(source, "deep/model.onnx")
    with claimed_folder(tmp_path / "work", "run-", for_tools=True) as folder:
        stage = Stage(folder / "package", [LocalFile(entry, source)])
        stage.fill()
        assert list(files_below(stage.root)) == [stage.root / "deep" / "model.onnx"]
        stage.check_untouched()
        source.write_bytes(b"CONTENT")
        with pytest.raises(Corrupt):
            stage.check_untouched()
    assert not list((tmp_path / "work").iterdir())
    assert source.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_what_a_link_names_is_laid_out_in_its_place(tmp_path: Path) -> None:
    source, link = tmp_path / "blob", tmp_path / "link"
    source.write_bytes(b"content")
    link.symlink_to(source)
    with claimed_folder(tmp_path / "work", "run-", for_tools=True) as folder:
        stage = Stage(folder / "package", [LocalFile(hash_file(source, "a"), link)])
        stage.fill()
        assert not (stage.root / "a").is_symlink()
        assert (stage.root / "a").read_bytes() == b"content"


def test_files_that_are_not_what_they_should_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    wrong = LocalFile(FileEntry("a", 1, "0" * 64), tmp_path / "a")
    missing = LocalFile(FileEntry("b", 1, "0" * 64), tmp_path / "b")
    for number, file in enumerate((wrong, missing)):
        with pytest.raises(Corrupt):
            Stage(tmp_path / f"stage{number}", [file]).fill()


def test_options_come_from_variables(tmp_path: Path) -> None:
    base = {"XDG_CACHE_HOME": str(tmp_path)}
    assert Options.from_environment(base).cache == tmp_path / "modelmill" / "azure"
    options = Options.from_environment(
        {
            **base,
            "AZURE_DEVOPS_EXT_ARTIFACTTOOL_OVERRIDE_PATH": "/ext",
            "MODELMILL_AZURE_TOOL_VERSION": "0.2.488",
            "MODELMILL_AZURE_IDLE_TIMEOUT": "12.5",
            "MODELMILL_AZURE_WORK": "/w",
        }
    )
    assert options.tool_folder == Path("/ext")
    assert (options.tool_version, options.idle_timeout) == ("0.2.488", 12.5)
    assert options.work == Path("/w")
    own = {"AZURE_DEVOPS_EXT_ARTIFACTTOOL_OVERRIDE_PATH": "/ext", "MODELMILL_AZURE_TOOL": "/own"}
    assert Options.from_environment(own).tool_folder == Path("/own")
    windows = Options.from_environment({"LOCALAPPDATA": str(tmp_path)})
    assert windows.work == tmp_path / "modelmill" / "azure" / "work"


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "1e99"])
def test_a_bad_number_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="MODELMILL_AZURE_READ_TIMEOUT"):
        Options.from_environment({"MODELMILL_AZURE_READ_TIMEOUT": text})


@pytest.mark.parametrize(
    ("system", "machine", "arch"),
    [
        ("Linux", "x86_64", "x86_64"),
        ("Linux", "aarch64", "aarch64"),
        ("Windows", "AMD64", "x86_64"),
        ("Windows", "ARM64", "x86_64"),
        ("Darwin", "arm64", "x86_64"),
    ],
)
def test_the_platform_is_told_in_the_services_words(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, arch: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "u", "VERSION_ID": "1"})
    found = release_query()
    assert (found["osName"], found["arch"]) == (system, arch)
    distro = {"distroName": "u", "distroVersion": "1"} if system == "Linux" else {}
    assert found == {"osName": system, "arch": arch, **distro}
    monkeypatch.setattr("platform.freedesktop_os_release", dict)
    assert release_query() == {"osName": system, "arch": arch}


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as contents:
        for name, content in members.items():
            contents.writestr(name, content)
    return buffer.getvalue()


def test_an_archive_is_unpacked_and_made_executable(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped(**{EXECUTABLE: b"#!", "lib/a": b"a"}))
    unpack(tmp_path / "x.zip", tmp_path / "out")
    mode = (tmp_path / "out" / EXECUTABLE).stat().st_mode
    assert sys.platform == "win32" or mode & stat.S_IXUSR


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "C:/x", "..\\x", "\\x", "C:x"])
def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.zip").write_bytes(zipped(**{EXECUTABLE: b"#!", name: b"evil"}))
    with pytest.raises(Corrupt):
        unpack(tmp_path / "x.zip", tmp_path / "out")
    assert not (tmp_path / "x").exists()


def test_a_damaged_archive_may_be_fetched_again(tmp_path: Path) -> None:
    content = bytearray(zipped(**{EXECUTABLE: b"#!" * 1000}))
    content[60] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(Unavailable):
        unpack(tmp_path / "x.zip", tmp_path / "out")


def test_opening_a_feed_asks_nobody(tmp_path: Path) -> None:
    environ = {"MODELMILL_AZURE_CACHE": str(tmp_path / "cache")}
    feed = open_azure("https://dev.azure.com/Acme/Lab/Models", environ=environ)
    assert feed.name == "azure:https://dev.azure.com/acme/lab/models"
    assert not (tmp_path / "cache").exists()
    with pytest.raises(UsageError):
        open_azure("https://dev.azure.com/acme", environ=environ)

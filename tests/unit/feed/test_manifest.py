from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from feed.errors import Corrupt
from feed.interface import write_description
from feed.layout import Manifest, parse_manifest
from matrix.digest import FileEntry

TREE = "c" * 64
FILES = (FileEntry("a/é.onnx", 3, "a" * 64), FileEntry("b", 0, "b" * 64))
WHEN = datetime(2026, 6, 9, 14, tzinfo=timezone(timedelta(hours=2)))
MANIFEST = Manifest("pkg", "1.0.0", write_description(TREE, "é"), WHEN, FILES)

Edit = Callable[[dict[str, Any]], object]


def test_round_trip() -> None:
    assert parse_manifest(MANIFEST.to_json(), "x", "pkg", "1.0.0") == MANIFEST


def test_a_listing_shows_views() -> None:
    listed = MANIFEST.published(("release",))
    assert (listed.tree, listed.published_at, listed.views) == (TREE, WHEN, ("release",))
    assert not listed.deleted


@pytest.mark.parametrize(
    "edit",
    [
        lambda value: value.pop("format"),
        lambda value: value.update(format=2),
        lambda value: value.update(package="other"),
        lambda value: value.update(version="1.0.1"),
        lambda value: value.pop("description"),
        lambda value: value.update(description=7),
        lambda value: value.update(files={}),
        lambda value: value.pop("published_at"),
        lambda value: value.update(published_at="yesterday"),
    ],
)
def test_rubbish_is_an_error_that_names_the_file(edit: Edit) -> None:
    value = json.loads(MANIFEST.to_json())
    edit(value)
    data = json.dumps(value).encode()
    with pytest.raises(Corrupt, match=r"/feed/x\.json"):
        parse_manifest(data, "/feed/x.json", "pkg", "1.0.0")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"path": 1, "size": 1, "sha256": "a" * 64},
        {"path": "a", "size": -1, "sha256": "a" * 64},
        {"path": "a", "size": True, "sha256": "a" * 64},
        {"path": "a", "size": "1", "sha256": "a" * 64},
        {"path": "a", "size": 1, "sha256": "a" * 63},
        {"path": "a", "size": 1, "sha256": None},
    ],
)
def test_a_bad_file_entry_is_an_error(entry: object) -> None:
    value = json.loads(MANIFEST.to_json())
    value["files"].append(entry)
    with pytest.raises(Corrupt, match=r"x\.json"):
        parse_manifest(json.dumps(value).encode(), "x.json", "pkg", "1.0.0")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"7"])
def test_what_is_no_manifest_at_all(data: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_manifest(data, "x", "pkg", "1.0.0")


def test_every_truncation_is_noticed() -> None:
    data = MANIFEST.to_json().rstrip()
    for size in range(len(data)):
        with pytest.raises(Corrupt):
            parse_manifest(data[:size], "x", "pkg", "1.0.0")

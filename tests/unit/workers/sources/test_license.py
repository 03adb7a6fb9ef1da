"""The licence that the files of a model tell, in the order in which they are believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engines.sources import RANDOM, folder_source, make_request, write_model
from workers.sources import hub
from workers.sources.license import license_of

APACHE = "                                 Apache License\n                           Version 2.0\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"README.md": "---\nlicense: apache-2.0\ntags: [x]\n---\n# Title\n"}, "apache-2.0"),
        ({"README.md": "---\nlicense: other\nlicense_name: own-1\n---\n"}, "own-1"),
        ({"README.md": "---\nlicense: other\n---\n", "LICENSE": APACHE}, "apache-2.0"),
        ({"LICENSE": APACHE, "config.json": json.dumps({"license": "mit"})}, "mit"),
        ({"LICENSE": "MIT License\n\nCopyright"}, "mit"),
        ({"LICENSE": "All rights reserved"}, ""),
        ({"README.md": "# Title\nlicense: mit\n"}, ""),
        ({"README.md": "---\nlicense: [mit, apache-2.0]\n---\n"}, ""),
        ({"README.md": "---\n\tlicense: {\n---\n"}, ""),
        ({"README.md": '---\nlicense: "a\\u202eb"\n---\n'}, ""),
        ({"README.md": "---\n- license\n---\n", "config.json": "[]"}, ""),
        ({}, ""),
    ],
)
def test_the_files_of_a_model_tell_its_licence(
    tmp_path: Path, files: dict[str, str], found: str
) -> None:
    folder = write_model(tmp_path / "model")
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    told = license_of(make_request(folder_source(folder)), None, tmp_path)
    assert told == ({"license": found} if found else {})


def test_what_was_downloaded_or_is_in_the_cache_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = make_request({**RANDOM, "kind": "hub", "ref": "org/name"})
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(hub, "cached", lambda ref, commit: cache)
    assert license_of(request, "c" * 40, tmp_path) == {}
    (cache / "README.md").write_text("---\nlicense: mit\n---\n", "utf-8")
    assert license_of(request, "c" * 40, tmp_path) == {"license": "mit"}
    (tmp_path / hub.DOWNLOADED).mkdir()
    (tmp_path / hub.DOWNLOADED / "README.md").write_text("---\nlicense: gpl\n---\n", "utf-8")
    assert license_of(request, "c" * 40, tmp_path) == {"license": "gpl"}


def test_random_weights_have_none(tmp_path: Path) -> None:
    assert license_of(make_request(dict(RANDOM)), None, tmp_path) == {}

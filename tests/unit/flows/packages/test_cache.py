"""Where the settings say that the cache is, and who may say it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.packages.builder import place_of
from flows.settings.resolution import resolve
from matrix.errors import UsageError
from workers.store.cache_folder import FolderPlace
from workers.store.cache_http import HttpPlace

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("cache", "where"),
    [
        ("shared", "BASE/shared"),
        ("file:BASE/a%20b", "BASE/a b"),
        ("file://BASE/x", "BASE/x"),
        ("file://localhostBASE/x", "BASE/x"),
        ("C:/cache", "C:/cache" if os.name == "nt" else "BASE/C:/cache"),
        ("http://cache:8080/a/", "http://cache:8080/a"),
        ("https://cache", "https://cache"),
    ],
)
def test_a_cache_is_a_folder_or_a_server(tmp_path: Path, cache: str, where: str) -> None:
    base = tmp_path.as_posix()
    path = base if base.startswith("/") else f"/{base}"  # file:///C:/cache
    settings = resolve({}, {"MODELMILL_CACHE": cache.replace("BASE", path)}, tmp_path)
    place = place_of(settings, {})
    assert place is not None
    assert isinstance(place, HttpPlace if cache.startswith("http") else FolderPlace)
    assert Path(place.where) == Path(where.replace("BASE", base))


def test_a_drive_of_windows_in_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = resolve({}, {"MODELMILL_CACHE": "file:///C:/cache"}, tmp_path)
    monkeypatch.setattr("flows.packages.builder.WINDOWS", True)
    place = place_of(settings, {})
    assert place is not None
    assert place.where.replace("\\", "/") == "C:/cache"


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        (f"http://mill:{SECRET}@cache:80", "MODELMILL_CACHE_USER"),
        (f"http://cache/?token={SECRET}", "MODELMILL_CACHE_USER"),
        (f"http://cache/#{SECRET}", "MODELMILL_CACHE_USER"),
        (f"http://mill:{SECRET}/x@cache", "cannot be read"),
        (f"http://mill/{SECRET}@cache", "MODELMILL_CACHE_USER"),
        (f"s3://mill:{SECRET}@bucket", "MODELMILL_CACHE_USER"),
        ("ftp://cache", "is not the URL of a cache"),
        ("http://", "is not the URL of a cache"),
        ("http:cache", "is not the URL of a cache"),
        ("http://a b", "is not the URL of a cache"),
        ("http://cache/\x1b[2J", "is not the URL of a cache"),
        ("http://cache:99999", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("file://far/away", "is not the URL of a cache"),
        ("file:", "is not the URL of a cache"),
    ],
)
@pytest.mark.parametrize("by_file", [False, True])
def test_a_cache_that_cannot_be_one_is_refused_without_repeating_a_secret(
    tmp_path: Path, cache: str, words: str, by_file: bool
) -> None:
    environ = {} if by_file else {"MODELMILL_CACHE": cache}
    if by_file:
        text = f"cache = {cache!r}\n".replace("'", '"').replace("\\x1b", "\\u001b")
        (tmp_path / "modelmill.toml").write_text(text, "utf-8")
    with pytest.raises(UsageError) as refused:
        resolve({}, environ, tmp_path)
    told = f"{refused.value.message} {refused.value.hint}"
    assert words in told
    assert SECRET not in told
    assert ("modelmill.toml" if by_file else "MODELMILL_CACHE") in told


@pytest.mark.parametrize(
    ("cache", "environ", "words"),
    [
        ("http://cache", {"MODELMILL_CACHE_TOKEN": SECRET}, "in plain text"),
        ("https://cache", {"MODELMILL_CACHE_TOKEN": f"{SECRET}\r\nX: y"}, "no token has"),
        ("https://cache", {"MODELMILL_CACHE_PASSWORD": SECRET}, "without a user"),
    ],
)
def test_credentials_that_cannot_be_sent_safely_are_refused(
    tmp_path: Path, cache: str, environ: dict[str, str], words: str
) -> None:
    settings = resolve({"cache": cache}, {}, tmp_path)
    with pytest.raises(UsageError, match=words) as refused:
        place_of(settings, environ)
    assert SECRET not in f"{refused.value.message} {refused.value.hint}"


def test_credentials_go_to_this_machine_in_plain_text(tmp_path: Path) -> None:
    settings = resolve({"cache": "http://localhost:8080"}, {}, tmp_path)
    place = place_of(settings, {"MODELMILL_CACHE_TOKEN": SECRET})
    assert place is not None
    assert place.where == "http://localhost:8080"

"""What identifies a source, and what is said when there is none."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.engines.sources import (
    RANDOM,
    folder_source,
    make_request,
    write_model,
    write_safetensors,
)
from workers.engine import StageError
from workers.sources import hub, source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def digest(model_source: dict[str, Any], **options: Any) -> str:
    return source.resolve(make_request(model_source, **options)).digest


def test_a_random_source_is_its_architecture_config_and_seed() -> None:
    base = digest(dict(RANDOM))
    assert base == digest({**RANDOM, "config": {"x": 1}})
    changes: list[dict[str, Any]] = [{"seed": 8}, {"ref": "t5"}, {"config": {"x": 2}}]
    assert base not in {digest({**RANDOM, **change}) for change in changes}
    assert len(base) == 64


def test_a_folder_is_the_content_of_the_files_that_matter(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one")
    two = write_model(tmp_path / "two")
    (two / "README.md").write_text("hello", encoding="utf-8")
    (two / ".git").mkdir()
    (two / ".git" / "config.json").write_text("{}", encoding="utf-8")
    assert digest(folder_source(one)) == digest(folder_source(two))
    (two / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert digest(folder_source(one)) != digest(folder_source(two))
    resolved = source.resolve(make_request(folder_source(two)))
    assert str(tmp_path) not in str(resolved.as_json())
    assert resolved.size == 4 * 64


def test_halves_count_as_the_floats_that_they_are_exported_as(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    save_file({"w": np.zeros((8, 8), np.float16)}, folder / "model.safetensors")
    assert source.resolve(make_request(folder_source(folder))).size == 4 * 64


def test_a_rewritten_file_is_hashed_again(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    before = digest(folder_source(folder))
    write_safetensors(folder / "model.safetensors", size=65)
    assert digest(folder_source(folder)) != before


def test_an_unchanged_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path)
    before = digest(folder_source(folder))
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert digest(folder_source(folder)) == before


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="does not exist") as raised:
        digest(folder_source(tmp_path / "nowhere"))
    assert raised.value.failure == "EXPORT"
    assert not raised.value.retryable


class Hub:
    """A hub that answers as told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def model_info(self, *_args: Any, **_options: Any) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(sha=self.answer)


@pytest.fixture
def hub_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    import huggingface_hub
    from huggingface_hub import constants

    monkeypatch.setattr(hub, "_resolved", {})
    monkeypatch.setattr(hub, "_out_of_reach", [0.0])
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    def says(answer: Any) -> Hub:
        made = Hub(answer)
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
        return made

    return says


def hub_source(revision: str | None = None) -> dict[str, Any]:
    return {"kind": "hub", "ref": "owner/name", "revision": revision, "seed": 0, "config": {}}


def test_a_branch_becomes_a_commit_once_for_all_cells(hub_says: Any) -> None:
    asked = hub_says(COMMIT)
    first = source.resolve(make_request(hub_source()))
    assert first.commit == COMMIT
    assert first.as_json()["commit"] == COMMIT
    asked.answer = OTHER
    assert source.resolve(make_request(hub_source())).commit == COMMIT
    assert asked.asked == 1


def test_a_commit_needs_no_network(hub_says: Any) -> None:
    hub_says(OSError("no network here"))
    named = source.resolve(make_request(hub_source(COMMIT)))
    assert named.commit == COMMIT
    hub_says(COMMIT)
    assert source.resolve(make_request(hub_source())).digest == named.digest


def test_an_unreachable_hub_is_a_network_failure(hub_says: Any) -> None:
    hub_says(ConnectionError("name or service\nnot known"))
    with pytest.raises(StageError, match="cannot be reached") as raised:
        source.resolve(make_request(hub_source()))
    assert (raised.value.failure, raised.value.retryable) == ("NETWORK", True)
    assert "\n" not in str(raised.value)


def test_offline_the_cache_says_what_a_branch_was(hub_says: Any, tmp_path: Path) -> None:
    hub_says(ConnectionError("offline"))
    refs = tmp_path / "cache" / "models--owner--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("rubbish", encoding="ascii")
    with pytest.raises(StageError):
        source.resolve(make_request(hub_source()))
    (refs / "main").write_text(f"{COMMIT}\n", encoding="ascii")
    assert source.resolve(make_request(hub_source())).commit == COMMIT


def remember(cache: Path, name: str) -> dict[str, Any]:
    refs = cache / f"models--owner--{name}" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(COMMIT, encoding="ascii")
    return {**hub_source(), "ref": f"owner/{name}"}


def test_where_the_cache_stands_in_once_no_further_model_waits_for_the_hub(
    hub_says: Any, tmp_path: Path
) -> None:
    asked = hub_says(ConnectionError("offline"))
    for name in ("one", "two", "three"):
        assert source.resolve(make_request(remember(tmp_path / "cache", name))).commit == COMMIT
    assert asked.asked == 1


def test_a_hub_known_to_be_out_of_reach_is_left_alone(hub_says: Any, tmp_path: Path) -> None:
    asked = hub_says(COMMIT)
    request = make_request(remember(tmp_path / "cache", "cached"))
    offline = replace(request, model={**request.model, "offline": True})
    assert source.resolve(offline).commit == COMMIT
    request = make_request(hub_source())
    with pytest.raises(StageError, match="cannot be reached") as raised:
        source.resolve(replace(request, model={**request.model, "offline": True}))
    assert raised.value.failure == "NETWORK"
    assert asked.asked == 0


def test_a_hub_that_is_silent_is_told_in_plain_words(hub_says: Any) -> None:
    class ReadTimeout(OSError):
        """As the hub's client raises it."""

    hub_says(ReadTimeout("HTTPConnectionPool(host=...): Read timed out. (read timeout=10.0)"))
    with pytest.raises(StageError) as raised:
        source.resolve(make_request(hub_source()))
    assert str(raised.value) == (
        "the Hugging Face hub cannot be reached: it does not answer in time"
    )


def test_what_the_system_said_is_told_and_not_what_clients_made_of_it(hub_says: Any) -> None:
    below = ConnectionRefusedError(111, "Connection refused")
    above = ConnectionError("HTTPConnectionPool(host=...): Max retries exceeded with url: /owner/x")
    above.__cause__ = below
    hub_says(above)
    with pytest.raises(StageError) as raised:
        source.resolve(make_request(hub_source()))
    said = "the Hugging Face hub cannot be reached: Connection refused"
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("error", "failure", "words"),
    [
        ("GatedRepoError", "AUTH", "gated"),
        ("RepositoryNotFoundError", "AUTH", "does not exist"),
        ("RevisionNotFoundError", "EXPORT", "no revision"),
    ],
)
def test_what_the_hub_refuses_is_not_retried(
    hub_says: Any, error: str, failure: str, words: str
) -> None:
    from huggingface_hub import errors

    made = getattr(errors, error).__new__(getattr(errors, error))
    hub_says(made)
    with pytest.raises(StageError, match=words) as raised:
        source.resolve(make_request(hub_source("v1")))
    assert (raised.value.failure, raised.value.retryable) == (failure, False)
    assert raised.value.hint

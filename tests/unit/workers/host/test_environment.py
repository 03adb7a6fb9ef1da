from __future__ import annotations

import pytest

from workers.host.process import child_environment, mask


@pytest.mark.parametrize(
    "name",
    [
        "AZURE_DEVOPS_EXT_PAT",
        "AZURE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
        "SYSTEM_ACCESSTOKEN",
        "GITHUB_TOKEN",
        "FEED_PAT",
        "DB_PASSWORD",
        "PGPASSWORD",
        "MY_SECRET_THING",
        "HUGGING_FACE_HUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "MODELMILL_STATE",
        "github_token",
    ],
)
def test_credentials_stay_with_the_owner(name: str) -> None:
    assert name not in child_environment({name: "s3cret"}, {}, foreign=False)


def test_a_url_with_a_password_is_a_credential_under_any_name() -> None:
    parent = {
        "PIP_INDEX_URL": "https://user:hunter2@index.example/simple",
        "HOME_PAGE": "https://x",
    }
    child = child_environment(parent, {}, foreign=False)
    assert "PIP_INDEX_URL" not in child
    assert child["HOME_PAGE"] == "https://x"


def test_what_a_build_needs_is_passed() -> None:
    parent = {
        "HF_TOKEN": "hf_abcdefgh",
        "PATH": "/bin",
        "HF_HOME": "/cache",
        "HTTPS_PROXY": "http://user:pass@proxy:3128",
        "PATHEXT": ".EXE",
    }
    assert parent.items() <= child_environment(parent, {}, foreign=False).items()


def test_telemetry_is_off_and_threads_are_limited() -> None:
    child = child_environment({"HF_HUB_DISABLE_TELEMETRY": "0"}, {}, foreign=False, threads=3)
    assert child["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert child["ORT_DISABLE_TELEMETRY"] == "1"
    assert child["DO_NOT_TRACK"] == "1"
    assert child["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in child_environment({}, {}, foreign=False)


def test_a_foreign_interpreter_does_not_get_our_paths() -> None:
    parent = {"PYTHONPATH": "/ours", "PYTHONHOME": "/ours", "VIRTUAL_ENV": "/ours"}
    assert not parent.keys() & child_environment(parent, {}, foreign=True).keys()
    assert parent.items() <= child_environment(parent, {}, foreign=False).items()
    assert child_environment(parent, {"PYTHONPATH": "/x"}, foreign=True)["PYTHONPATH"] == "/x"


def test_a_secret_is_masked_wherever_it_stands() -> None:
    assert mask("a hf_abcdefgh b", "hf_abcdefgh") == "a *********** b"
    assert mask("a short b", "short") == "a short b"
    assert mask("text", None) == "text"

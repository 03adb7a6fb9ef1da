from __future__ import annotations

import pytest

from matrix.credentials import is_credential, without_credentials


@pytest.mark.parametrize(
    "name",
    [
        "AZURE_DEVOPS_EXT_PAT",
        "AZURE_TENANT_ID",
        "SYSTEM_ACCESSTOKEN",
        "HF_TOKEN",
        "GITHUB_TOKEN",
        "MYSQL_PWD",
        "SMTP_PASS",
        "SIGN_PASSPHRASE",
        "AWS_ACCESS_KEY_ID",
        "STORAGE_ACCOUNT_KEY",
        "DEPLOY_PRIVATE_KEY",
        "PREFECT_API_AUTH_STRING",
        "PREFECT_API_DATABASE_CONNECTION_URL",
        "MODELMILL_STATE",
        "github_token",
    ],
)
def test_a_credential_is_known_by_its_name(name: str) -> None:
    assert is_credential(name, "s3cret")
    assert without_credentials({name: "s3cret", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "OLDPWD", "HF_HOME", "TOKENIZERS_PARALLELISM", "SSL_CERT_FILE", "TERM"]
)
def test_what_is_none_passes(name: str) -> None:
    assert without_credentials({name: "value"}) == {name: "value"}


def test_a_child_keeps_what_it_is_said_to_need() -> None:
    environ = {"Pip_Index_Url": "https://me:hunter2@index.example", "FEED_PAT": "s3cret"}
    kept = without_credentials(environ, lambda name: name.startswith("PIP_"))
    assert kept == {"Pip_Index_Url": "https://me:hunter2@index.example"}

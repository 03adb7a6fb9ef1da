from __future__ import annotations

import pytest

from flows.output.masking import masked, masked_json

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgresql://me:s3cr3t@db/mill", "s3cr3t"),
        ("https://user:p%40ss@host/x and more", "p%40ss"),
        ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
        ("authorization: basic OnBhdHBhdHBhdHBhdA==", "OnBhdHBhdHBhdHBhdA"),
        (f"token {TOKEN} refused", TOKEN),
        ("using hf_abcdefghijklmnopqrst", "hf_abcdefghijklmnopqrst"),
        ("GET https://blob/x?sv=1&sig=AbCdEf123456%3D&se=2", "AbCdEf123456"),
        ("HF_TOKEN=abcd1234efgh", "abcd1234efgh"),
        ('"client_secret": "qwertyuiop"', "qwertyuiop"),
        ("password: hunter22", "hunter22"),
    ],
)
def test_what_looks_like_a_credential_is_masked(text: str, secret: str) -> None:
    assert secret not in masked(text)
    assert "***" in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "microsoft/resnet-50:image-classification@qnn_npu",
        "0.0.0-20260609-qnn-npu-microsoft-resnet-50",
        "a" * 64,
        "dir:/srv/feed",
        "input 'token_type_ids' has no shape; tokens: 12, key: value",
        "https://pkgs.dev.azure.com/org/_packaging/feed",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert masked(text) == text


def test_json_is_masked_in_depth() -> None:
    value = {"a": ["https://u:p4ss@h", 1, None, {"b": "hf_abcdefghijklmnopqrst"}], "ok": True}
    assert masked_json(value) == {"a": ["https://***@h", 1, None, {"b": "***"}], "ok": True}

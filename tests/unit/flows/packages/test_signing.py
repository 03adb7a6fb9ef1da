"""Signatures with keys as OpenSSL writes them, and every way in which one can be wrong."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import securesystemslib.signer  # noqa: F401 - its import starts a process, which no test may
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
)
from securesystemslib.dsse import Envelope
from securesystemslib.signer._crypto_signer import CryptoSigner

from flows.packages.signing import (
    UNLOCK,
    SigningError,
    check_signature,
    public_keys,
    signature_check,
    signer_of,
)
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from machine.installation import install
from matrix.credentials import is_credential
from matrix.digest import PAYLOAD_TYPE
from matrix.errors import UsageError
from tests.signing.keys import write_keys

STATEMENT = b'{"_type": "statement"}\n'
PASSWORD = b"a-pass-phrase-of-ours"


def settings(folder: Path, key: Path | None) -> Settings:
    return resolve({"sign_key": str(key)} if key else {}, {}, folder)


def signed(folder: Path, key: Path, statement: bytes = STATEMENT) -> bytes:
    sign = signer_of(settings(folder, key))
    assert sign is not None
    return sign(statement)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_what_is_signed_is_verified(tmp_path: Path, kind: str) -> None:
    makers: dict[str, Callable[[], object]] = {
        "ed25519": Ed25519PrivateKey.generate,
        "ecdsa": lambda: generate_private_key(SECP256R1()),
        "rsa": lambda: generate_rsa(65537, 2048),
    }
    key = write_keys(tmp_path, key=makers[kind]())
    envelope = signed(tmp_path, key)
    check_signature(envelope, STATEMENT, public_keys(key.with_suffix(".pub")))
    assert envelope.count(b"\n") == 1
    told = json.loads(envelope)
    assert told["payloadType"] == "application/vnd.in-toto+json"
    assert base64.b64decode(told["payload"]) == STATEMENT


@pytest.mark.parametrize(
    "ask",
    [
        signer_of,
        lambda given: signature_check(given, signs=True),
        lambda given: public_keys(Path(str(given.sign_key))),
    ],
    ids=["signs", "checks what it signs", "checks"],
)
def test_without_the_library_nothing_is_taken_for_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Settings], object]
) -> None:
    given = settings(tmp_path, write_keys(tmp_path))
    monkeypatch.setitem(sys.modules, "securesystemslib.signer", None)
    with pytest.raises(UsageError, match="need the library securesystemslib") as refused:
        ask(given)
    assert refused.value.hint == install("sign")


def test_the_signature_is_one_by_the_rules_of_dsse_alone(tmp_path: Path) -> None:
    """Checked without the library that made it, so that other tools can check it too."""
    made = Ed25519PrivateKey.generate()
    told = json.loads(signed(tmp_path, write_keys(tmp_path, key=made)))
    kind = told["payloadType"].encode()
    pae = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(STATEMENT), STATEMENT)
    (signature,) = told["signatures"]
    made.public_key().verify(base64.b64decode(signature["sig"]), pae)
    with pytest.raises(InvalidSignature):
        made.public_key().verify(base64.b64decode(signature["sig"]), pae + b" ")


def sealed_by(signer: CryptoSigner, keyid: str | None = None) -> bytes:
    """An envelope as another tool makes it."""
    envelope = Envelope(STATEMENT, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    told = envelope.to_dict()
    if keyid is not None:
        told["signatures"][0]["keyid"] = keyid
    return json.dumps(told).encode()


def test_rsa_signs_as_cosign_verifies_and_takes_what_the_library_signs(tmp_path: Path) -> None:
    made = generate_rsa(65537, 2048)
    key = write_keys(tmp_path, key=made)
    told = json.loads(signed(tmp_path, key))
    (signature,) = told["signatures"]
    pae = Envelope(STATEMENT, PAYLOAD_TYPE, {}).pae()
    made.public_key().verify(base64.b64decode(signature["sig"]), pae, PKCS1v15(), SHA256())
    check_signature(sealed_by(CryptoSigner(made)), STATEMENT, public_keys(key.with_suffix(".pub")))


@pytest.mark.parametrize("keyid", ["", "what another tool calls it"])
def test_the_id_of_a_key_is_only_a_hint(tmp_path: Path, keyid: str) -> None:
    made = Ed25519PrivateKey.generate()
    key = write_keys(tmp_path, key=made)
    envelope = sealed_by(CryptoSigner(made), keyid)
    check_signature(envelope, STATEMENT, public_keys(key.with_suffix(".pub")))
    other = write_keys(tmp_path, "other")
    with pytest.raises(SigningError, match="not signed by that key"):
        check_signature(envelope, STATEMENT, public_keys(other.with_suffix(".pub")))


def test_what_is_made_into_something_signed_must_be_signed(tmp_path: Path) -> None:
    key, other = write_keys(tmp_path), write_keys(tmp_path, "other")
    mine = settings(tmp_path, key)
    assert signature_check(mine) is None, "reading asks for no key"
    check = signature_check(mine, signs=True)
    assert check is not None
    check(signed(tmp_path, key), STATEMENT)
    with pytest.raises(SigningError):
        check(signed(tmp_path, other), STATEMENT)
    told = resolve({"sign_key": str(key), "key": str(other.with_suffix(".pub"))}, {}, tmp_path)
    for signs in (False, True):
        check = signature_check(told, signs=signs)
        assert check is not None
        check(signed(tmp_path, other), STATEMENT)
    assert signature_check(resolve({}, {}, tmp_path), signs=True) is None


def test_nothing_is_signed_without_a_key(tmp_path: Path) -> None:
    assert signer_of(settings(tmp_path, None)) is None


def test_another_key_does_not_verify(tmp_path: Path) -> None:
    envelope = signed(tmp_path, write_keys(tmp_path))
    other = write_keys(tmp_path, "other")
    with pytest.raises(SigningError, match="not signed by that key"):
        check_signature(envelope, STATEMENT, public_keys(other.with_suffix(".pub")))


def test_another_statement_is_not_what_was_signed(tmp_path: Path) -> None:
    key = write_keys(tmp_path)
    envelope = signed(tmp_path, key, b"another statement")
    with pytest.raises(SigningError, match="not the provenance of this package"):
        check_signature(envelope, STATEMENT, public_keys(key.with_suffix(".pub")))


def test_a_payload_that_was_changed_does_not_verify(tmp_path: Path) -> None:
    key = write_keys(tmp_path)
    told = json.loads(signed(tmp_path, key))
    told["payload"] = base64.b64encode(b"forged").decode()
    with pytest.raises(SigningError):
        check_signature(json.dumps(told).encode(), b"forged", public_keys(key.with_suffix(".pub")))


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"payload": "!", "payloadType": "x", "signatures": []}',
        b'{"payload": "AA==", "payloadType": "x", "signatures": [1]}',
        b'{"payload": "AA==", "payloadType": 3, "signatures": [{"keyid": "a", "sig": "AA=="}]}',
    ],
)
def test_rubbish_is_no_signature(tmp_path: Path, rubbish: bytes) -> None:
    key = public_keys(write_keys(tmp_path).with_suffix(".pub"))
    with pytest.raises(SigningError):
        check_signature(rubbish, STATEMENT, key)


def test_an_encrypted_key_needs_its_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = write_keys(tmp_path, lock=BestAvailableEncryption(PASSWORD))
    with pytest.raises(UsageError, match="is encrypted"):
        signer_of(settings(tmp_path, key))
    monkeypatch.setenv(UNLOCK, "wrong")
    with pytest.raises(UsageError) as caught:
        signer_of(settings(tmp_path, key))
    assert "wrong'" not in str(caught.value)
    monkeypatch.setenv(UNLOCK, PASSWORD.decode())
    assert PASSWORD not in signed(tmp_path, key)
    assert is_credential(UNLOCK, PASSWORD.decode())


def test_a_passphrase_for_an_open_key_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(UNLOCK, "x")
    with pytest.raises(UsageError, match="is not encrypted"):
        signer_of(settings(tmp_path, write_keys(tmp_path)))


def test_files_that_are_no_keys_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    with pytest.raises(UsageError, match="not a private key"):
        signer_of(settings(tmp_path, tmp_path / "text"))
    with pytest.raises(UsageError, match="cannot be read"):
        signer_of(settings(tmp_path, tmp_path / "absent.pem"))
    with pytest.raises(UsageError, match="not a public key"):
        public_keys(tmp_path / "text")
    exchange = write_keys(tmp_path, "exchange", X25519PrivateKey.generate())
    with pytest.raises(UsageError, match="cannot sign"):
        signer_of(settings(tmp_path, exchange))
    with pytest.raises(UsageError, match="public key"):
        public_keys(exchange.with_suffix(".pub"))

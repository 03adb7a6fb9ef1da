"""Signing provenance and checking signatures: DSSE envelopes by securesystemslib.

in-toto and TUF use the same library. It needs no network and no service, and takes the keys that
OpenSSL makes (Ed25519, ECDSA, RSA in PEM). The extra `modelmill[sign]` installs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.settings import Settings
from machine.user_errors import user_errors
from matrix.digest import PAYLOAD_TYPE
from matrix.errors import Exit, MillError, UsageError

if TYPE_CHECKING:
    from securesystemslib.signer._key import Key

UNLOCK = "MODELMILL_SIGN_PASSWORD"
"""The variable with the passphrase of an encrypted key. It is never a flag and never recorded, and
its name keeps it from the processes that build."""

_INSTALL = "pip install modelmill[sign]"


class SigningError(MillError):
    """A signature could not be made, or is not by the given key."""

    exit_code = Exit.USAGE


def signer_of(settings: Settings) -> Callable[[bytes], bytes] | None:
    """The function that signs statements, if a key is set. Finds every fault of the key."""
    if not settings.sign_key:
        return None
    _require()
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer._crypto_signer import CryptoSigner

    path = settings.path(settings.sign_key)
    try:
        signer = CryptoSigner(_private_key(path))
    except ValueError as error:
        raise UsageError(f"--sign-key {path}: this kind of key cannot sign: {error}") from None

    def sign(statement: bytes) -> bytes:
        envelope = Envelope(statement, PAYLOAD_TYPE, {})
        envelope.sign(signer)
        return json.dumps(envelope.to_dict(), separators=(",", ":")).encode() + b"\n"

    return sign


def public_key(path: Path) -> Key:
    """Read the key that signatures are checked with."""
    _require()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer._key import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(_read(path)))
    except ValueError as error:
        raise UsageError(f"--key {path} is not a public key in PEM: {error}") from None


def check_signature(envelope: bytes, statement: bytes, key: Key) -> None:
    """Raise `SigningError` unless the envelope holds this statement, signed by the key."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error as SecureSystemsError
    from securesystemslib.exceptions import VerificationError

    try:
        lines = envelope.decode().splitlines()
        signed = Envelope.from_dict(json.loads(lines[0]))
        signed.verify([key], 1)
    except VerificationError:
        raise SigningError("the provenance is not signed by that key") from None
    except (ValueError, LookupError, TypeError, AttributeError, SecureSystemsError) as error:
        raise SigningError(f"the signature cannot be read: {error}") from None
    if signed.payload_type != PAYLOAD_TYPE or signed.payload != statement:
        raise SigningError("what is signed is not the provenance of this package")


def _require() -> None:
    try:
        import securesystemslib.signer  # noqa: F401 - only whether it is there
    except ImportError:
        raise UsageError("signatures need the library securesystemslib", hint=_INSTALL) from None


def _private_key(path: Path) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = os.environ.get(UNLOCK)
    try:
        return load_pem_private_key(_read(path), passphrase.encode() if passphrase else None)
    except TypeError:
        what, verb = ("is not encrypted", "unset") if passphrase else ("is encrypted", "set")
        raise UsageError(f"--sign-key {path} {what}", hint=f"{verb} {UNLOCK}") from None
    except ValueError as error:
        # The library's text speaks of formats and passphrases, never of their content.
        text = f"--sign-key {path} is not a private key in PEM, or the passphrase is wrong: {error}"
        hint = "openssl genpkey -algorithm ed25519 -out key.pem makes one"
        raise UsageError(text, hint=hint) from None


def _read(path: Path) -> bytes:
    with user_errors(f"the key {path} cannot be read"):
        return path.read_bytes()

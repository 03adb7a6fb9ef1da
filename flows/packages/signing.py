"""Signing provenance and checking signatures: DSSE envelopes by securesystemslib.

in-toto and TUF use the same library. It needs no network and no service, and takes the keys that
OpenSSL makes (Ed25519, ECDSA, RSA in PEM). The extra `modelmill[sign]` installs it.

RSA signs with PKCS #1 v1.5, which is what cosign, OpenSSL and key services verify; the library's
own choice, PSS, is verified too.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feed.verdict import CheckSignature
from flows.settings.settings import Settings
from machine.files import read_file
from machine.installation import install
from machine.user_errors import user_errors
from matrix.digest import PAYLOAD_TYPE
from matrix.errors import Exit, MillError, UsageError

if TYPE_CHECKING:
    from securesystemslib.signer._key import SSlibKey

UNLOCK = "MODELMILL_SIGN_PASSWORD"
"""The variable with the passphrase of an encrypted key. It is never a flag and never recorded, and
its name keeps it from the processes that build."""

_RSA = ("rsa-pkcs1v15-sha256", "rsassa-pss-sha256")
"""How RSA signs, and how else it may have signed."""


class SigningError(MillError):
    """A signature could not be made, or is not by the given key."""

    exit_code = Exit.USAGE


def signer_of(
    settings: Settings, payload_type: str = PAYLOAD_TYPE
) -> Callable[[bytes], bytes] | None:
    """The function that signs statements, or what else the type says, if a key is set. Finds every
    fault of the key."""
    if not settings.sign_key:
        return None
    _require()
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer._crypto_signer import CryptoSigner

    path = settings.path(settings.sign_key)
    try:
        private = _private_key(path)
        signer = CryptoSigner(private, _keys(private.public_key())[0])
    except ValueError as error:
        raise UsageError(f"--sign-key {path}: this kind of key cannot sign: {error}") from None

    def sign(statement: bytes) -> bytes:
        envelope = Envelope(statement, payload_type, {})
        envelope.sign(signer)
        return json.dumps(envelope.to_dict(), separators=(",", ":")).encode() + b"\n"

    return sign


def signature_check(
    settings: Settings, *, signs: bool = False, payload_type: str = PAYLOAD_TYPE
) -> CheckSignature | None:
    """The function that checks the signatures of packages; None: no key is set.

    `signs`: for what becomes part of a package that is signed here. Without a key it must be signed
    with the same key: nothing unsigned is signed by way of what is made from it.
    """
    if settings.key:
        keys = public_keys(settings.path(settings.key))
        return partial(check_signature, keys=keys, payload_type=payload_type)
    if signs and settings.sign_key:
        _require()
        private = _private_key(settings.path(settings.sign_key))
        keys = _keys(private.public_key())
        return partial(check_signature, keys=keys, payload_type=payload_type)
    return None


def public_keys(path: Path) -> list[SSlibKey]:
    """Read the key that signatures are checked with, in each way in which it may have signed."""
    _require()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        return _keys(load_pem_public_key(_read(path)))
    except ValueError as error:
        raise UsageError(f"--key {path} is not a public key in PEM: {error}") from None


def _keys(public: Any) -> list[SSlibKey]:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from securesystemslib.signer._key import SSlibKey

    schemes = _RSA if isinstance(public, RSAPublicKey) else (None,)
    return [SSlibKey.from_crypto(public, scheme=scheme) for scheme in schemes]


def check_signature(
    envelope: bytes, statement: bytes, keys: list[SSlibKey], payload_type: str = PAYLOAD_TYPE
) -> None:
    """Raise `SigningError` unless the envelope holds this statement, signed by the key."""
    from securesystemslib.dsse import Envelope

    try:
        told = json.loads(envelope.decode().splitlines()[0])
        signed = Envelope(b64decode(told["payload"], validate=True), told["payloadType"], {})
        made = [b64decode(one["sig"], validate=True) for one in told["signatures"]]
        data = signed.pae()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise SigningError(f"the signature cannot be read: {error}") from None
    if not any(_made_by(key, one, data) for one in made for key in keys):
        raise SigningError("the provenance is not signed by that key")
    if signed.payload_type != payload_type or signed.payload != statement:
        raise SigningError("what is signed is not the provenance of this package")


def _made_by(key: SSlibKey, signature: bytes, data: bytes) -> bool:
    """Whether a key made a signature. The id of a key is a hint, which other tools leave out."""
    from securesystemslib.exceptions import UnverifiedSignatureError
    from securesystemslib.signer._signature import Signature

    try:
        key.verify_signature(Signature(key.keyid, signature.hex()), data)
    except UnverifiedSignatureError:
        return False
    return True


def _require() -> None:
    try:
        import securesystemslib.signer  # noqa: F401 - only whether it is there
    except ImportError:
        raise UsageError(
            "signatures need the library securesystemslib", hint=install("sign")
        ) from None


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
    try:
        with user_errors(f"the key {path} cannot be read"):
            return read_file(path)
    except ValueError as error:
        raise UsageError(f"the key {path} cannot be read: {error}") from None

"""Key pairs as files."""

from __future__ import annotations

from pathlib import Path

import securesystemslib.signer  # noqa: F401 - its import starts a process, which no test may
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def write_keys(
    folder: Path,
    name: str = "key",
    key: object = None,
    lock: KeySerializationEncryption | None = None,
) -> Path:
    """A key pair; answers the path of the private one."""
    made = key or Ed25519PrivateKey.generate()
    assert hasattr(made, "private_bytes")
    path = folder / f"{name}.pem"
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock or NoEncryption()))
    assert hasattr(made, "public_key")
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
    return path

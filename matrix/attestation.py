"""Constants of provenance and SBOM, shared by the code that writes and the code that reads them.

A statement is an in-toto attestation v1 with a SLSA provenance v1 predicate. A signature wraps the
bytes of the statement, unchanged, in a DSSE envelope, which other tools can verify.
"""

from __future__ import annotations

from urllib.parse import quote

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

BUILD_TYPE = "urn:modelmill:package:v1"
"""How a package follows from `externalParameters`: the stages of its manifest, in their order."""

TREE_DIGEST = "modelmillTree"
"""The name of tree digests in a digest set; a tree digest covers a list of files, not one file."""

BOM_FORMAT = "CycloneDX"
BOM_VERSION = "1.6"


def tool_uri(name: str, version: str) -> str:
    """A Python distribution as a package URL."""
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version, safe='')}"

"""The words that provenance and SBOM are written in, for those who write and those who read them.

Statement: in-toto attestation v1 with a SLSA provenance v1 predicate. Signed, the very bytes of
the statement travel in a DSSE envelope, the form that other tools verify.
"""

from __future__ import annotations

from urllib.parse import quote

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

BUILD_TYPE = "urn:modelmill:package:v1"
"""How a package follows from `externalParameters`: the stages of its manifest, in their order."""

TREE_DIGEST = "modelmillTree"
"""The name of tree digests in a digest set: they are of a list of files, not of one file."""

BOM_FORMAT = "CycloneDX"
BOM_VERSION = "1.6"


def tool_uri(name: str, version: str) -> str:
    """A Python distribution as a package URL."""
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version, safe='')}"

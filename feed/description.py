"""The description of a version: one bounded line that begins with the tree digest.

A listing alone must tell what is published, so the digest travels in the only free text that
every feed shows in its listings. It comes first: a feed that cuts long texts cannot cut it.
"""

from __future__ import annotations

import re

MAX_DESCRIPTION = 500

_TREE = re.compile(r"(?:^|\s)tree=sha256:([0-9a-f]{64})(?=\s|$)")
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def write_description(tree: str, text: str = "") -> str:
    """`tree=sha256:<digest> <text>` on one line, the text shortened where it is too long."""
    line = " ".join([f"tree=sha256:{tree}", *_UNPRINTABLE.sub(" ", text).split()])
    return line if len(line) <= MAX_DESCRIPTION else line[: MAX_DESCRIPTION - 1].rstrip() + "…"


def parse_tree(description: str) -> str | None:
    """The tree digest that a description carries; None: the version is not one of ours."""
    found = _TREE.search(description)
    return found.group(1) if found else None

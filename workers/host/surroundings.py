"""What a build runs in: the interpreter, the system and every distribution that is installed.

Asked inside the engine's host, because its interpreter need not be ours. Standard library only.
"""

from __future__ import annotations

import platform
import re
from importlib import metadata
from typing import Any


def surroundings() -> dict[str, Any]:
    """Facts that no run of a stage changes; reading them takes a tenth of a second."""
    found: dict[str, dict[str, str]] = {}
    for distribution in metadata.distributions():
        # The first on the path is what is imported; a broken installation lacks its metadata.
        about: Any = distribution.metadata
        name, version = (about.get("Name"), about.get("Version")) if about else (None, None)
        if name and version:
            key = re.sub(r"[-_.]+", "-", name).lower()
            found.setdefault(
                key,
                {
                    "name": name,
                    "version": version,
                    # Only what is an SPDX expression by definition; older fields are free text.
                    "license": about.get("License-Expression") or "",
                },
            )
    return {
        "python": {
            "implementation": platform.python_implementation(),
            "version": platform.python_version(),
        },
        "system": {
            "name": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
        },
        "distributions": [found[name] for name in sorted(found)],
    }

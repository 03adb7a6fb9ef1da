"""Which environment variables hold credentials: a child process gets only those that it needs.

Every room that starts a process makes its environment here and names what it keeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

CREDENTIAL = re.compile(
    r"^(AZURE_.*|.*TOKEN|.*_PAT|.*PASSWORD.*|.*PASSWD.*|.*PASSPHRASE.*|.*_PASS|.*_PWD|.*SECRET.*"
    r"|.*_API_?KEY|.*ACCESS_?KEY.*|.*(PRIVATE|ACCOUNT|SHARED|ENCRYPTION)_?KEY.*|.*CREDENTIALS?.*"
    r"|.*CONNECTION_(STRING|URL).*|PREFECT_.*AUTH.*|MODELMILL_STATE)$"
)
"""Names of variables whose value is a secret or leads to one (a state URL may hold a password)."""

URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def is_credential(name: str, value: str) -> bool:
    """Whether a variable is a credential by its name or by a URL with a password (no proxy)."""
    upper = name.upper()
    if CREDENTIAL.match(upper):
        return True
    return not upper.endswith("_PROXY") and bool(URL_WITH_PASSWORD.search(value))


def without_credentials(
    environ: Mapping[str, str], keep: Callable[[str], bool] = lambda _name: False
) -> dict[str, str]:
    """The environment for a child; `keep` says which credentials (upper-case names) it needs."""
    return {
        name: value
        for name, value in environ.items()
        if keep(name.upper()) or not is_credential(name, value)
    }

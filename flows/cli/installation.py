"""What is installed of modelmill: which extras are missing, and which files are not its own.

An installation without extras is enough to plan and to read a feed. Whatever else a command needs
is imported before it does anything, so that a missing distribution leaves nothing half done.

Our top-level packages have names that other distributions use too, and pip lets the second one
write over the first without a word.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from machine.installation import EXTRAS, incomplete
from matrix.errors import UsageError

if TYPE_CHECKING:  # it costs more than a help text
    from importlib.metadata import Distribution, PackagePath

    from flows.settings.settings import Settings

PACKAGES = ("deploy", "feed", "flows", "machine", "matrix", "modelmill", "state", "workers")
"""The top level of our distribution."""


def overwritten(ours: Distribution) -> Iterator[str]:
    """Files of our packages that hold other bytes than the installer wrote.

    Nothing for an editable installation: it has no copies.
    """
    for file in ours.files or ():
        if file.parts[0] in PACKAGES and file.suffix == ".py" and _differs(file):
            yield file.as_posix()


def sharers(providers: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Other distributions by the name of the package of ours that they have too."""
    found = {name: sorted(set(providers.get(name, ())) - {"modelmill"}) for name in PACKAGES}
    return {name: others for name, others in found.items() if others}


def _differs(file: PackagePath) -> bool:
    if file.hash is None or file.hash.mode != "sha256":
        return False
    try:
        digest = hashlib.sha256(file.read_binary()).digest()
    except OSError:
        return True
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value


BUILDING = frozenset(
    [
        "bench",
        "compile",
        "explain",
        "onboard",
        "rebuild",
        "resume",
        "retry",
        "review",
        "sweep",
        "trace",
        "tune",
        "verify",
        "worker",
    ]
)
"""Commands that run models on this machine, unless a fleet does it for them."""


class NotInstalled(UsageError):
    """This installation lacks what the command needs."""


def not_installed(
    error: ModuleNotFoundError, settings: Settings, *, builds: bool = False
) -> NotInstalled | None:
    """The failed import in a user's words, and how to install all that the command lacks; None: no
    extra of ours has it. `builds`: the command goes on to build or to run models."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages][:1]
    if not extras:
        return None
    from flows.settings.engines import installing
    from workers.host.engines import extra_of

    if builds:
        extras += incomplete({"build", extra_of(settings.engine)})
    command = installing(settings, *extras)
    return NotInstalled(f"this needs {package}, which is not installed", hint=command)

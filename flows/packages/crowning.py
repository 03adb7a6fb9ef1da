"""The gate for champions: a version enters a view only if it is built as its champion says.

Its evidence goes along as a record beside the package: the champion with its numbers and, where the
state has it, the tuning that found it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feed.errors import Rejected
from feed.interface import Feed, Published
from flows.cli.settings import Settings
from flows.observe.masking import masked_json
from flows.packages.run_records import publish_record
from flows.sweep.workspace import Workspace
from matrix.champions import Champion, champion_for, read_champions, unlike
from matrix.codec import to_json
from matrix.errors import UsageError

STEP = "modelmill sweep CATALOG --champions FILE builds it"


def check_champion(
    settings: Settings, file: Path, manifest: Mapping[str, Any], name: str
) -> Champion:
    """The champion that a package is the build of. Raises `Rejected` with the reason if it is none.

    `name`: of the version, for messages.
    """
    champions = read_champions(settings.path(str(file)), Workspace(settings).targets())
    model, target = _of(manifest, "model"), _of(manifest, "target")
    key = (str(model.get("id", "")), str(model.get("task", "")), str(target.get("label", "")))
    try:
        champion = champion_for(champions, key)
    except UsageError as error:
        hint = error.hint or STEP
        raise Rejected(
            f"{name} is no champion: {error.message} in {file.name}", hint=hint
        ) from None
    if reason := unlike(champion, manifest):
        raise Rejected(f"{name} is not the {champion.told}: {reason}", hint=STEP)
    if champion.proof.emulated:
        raise Rejected(
            f"the {champion.told} was measured on an emulator, which proves nothing",
            hint="tune it on the device",
        )
    return champion


def publish_proof(
    settings: Settings, feed: Feed, subject: Published, champion: Champion
) -> tuple[str, str]:
    """Publish what a champion rests on; returns the package and version of the record."""
    proof = champion.proof
    files = {"champion.json": _text(to_json(champion))}
    if tuning := _tuning(settings, champion):
        files["tuning.json"] = _text(tuning)
    told = {
        "tuning": proof.tuning,
        "comparison": proof.comparison,
        "artifact": proof.artifact,
        "gain": {"percent": proof.gain, "low": proof.low, "high": proof.high},
        "on": dict(proof.runtime),
        "machine": dict(proof.machine),
    }
    return publish_record(settings, feed, "champion", subject, files, told)


def _tuning(settings: Settings, champion: Champion) -> Any:
    """The tuning that found it, if the state of this place has it with that very comparison."""
    from flows.tune.champions import comparison_digest
    from flows.tune.record import recorded

    work = Workspace(settings)
    if not work.has_state():
        return None
    with work.read_state() as state:
        for one in recorded(state, champion.proof.tuning):
            trial = one.trial(champion.proof.trial)
            if trial and comparison_digest(trial) == champion.proof.comparison:
                return masked_json(to_json(one))
    return None


def _of(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()

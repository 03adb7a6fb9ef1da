"""Promotion into a view: the bytes are read and checked, and a view may demand a level of
verification from each version.

With a file of champions, a version enters only if it is built as its champion says. The evidence
goes along as a record beside the package: the champion with its numbers and, where the state has
it, the tuning that found it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from feed.errors import NotFound, Rejected
from feed.interface import Feed, Published
from feed.verdict import Verdict
from feed.verify import verify_published
from flows.features import feature
from flows.output.console import tell
from flows.packages.run_records import json_bytes, publish_record
from flows.packages.signing import signature_check
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import read_json, temporary_folder
from matrix.champions import Champion, champion_for, read_champions, unlike
from matrix.codec import to_json
from matrix.datasets import SYNTHETIC
from matrix.digest import BUILD_RECORD, MANIFEST
from matrix.errors import UsageError
from matrix.manifest import checked_manifest, checked_record
from matrix.model import EXPORT
from matrix.naming import INDEX
from workers.verify.ladder.levels import Demand, proof_of

Json = Mapping[str, Any]
STEP = "modelmill sweep CATALOG --champions FILE builds it"


def demand_of(settings: Settings, view: str) -> Demand | None:
    """What a view demands; None: nothing. Feeds ignore the case of a view's name."""
    for text in settings.demand:
        name, _, level = text.partition("=")
        if name.strip().casefold() == view.casefold():
            return Demand.parse(level)
    return None


def promote(
    settings: Settings,
    feed: Feed,
    package: str,
    version: str,
    view: str,
    champions: Path | None = None,
) -> str:
    """Promote a version into a view if it may enter; returns the view as the feed spells it.

    `champions`: a file of them, one of which it must be the build of; its evidence is published.
    """
    name = feed.view(view)
    _check_demands(settings, feed, name)
    demand, title = demand_of(settings, name), f"{package} {version}"
    work = Workspace(settings).large_temp
    with temporary_folder("modelmill-promote-", work) as folder:
        dest, check = folder / "package", signature_check(settings)
        verdict = verify_published(feed, package, version, dest, signature=check)
        if not verdict.ok:
            text = f"{title} cannot enter {name}: {verdict.problems[0]}"
            raise Rejected(text, hint=f"see: modelmill feed verify {title}")
        # Exports and indexes are not verified themselves, belong to no champion and may enter.
        # Whatever is neither these nor a cell was never verified.
        if verdict.kind not in {EXPORT, INDEX}:
            manifest, record = _read(dest, MANIFEST, title), _read(dest, BUILD_RECORD, title)
            if demand is not None:
                _check(settings, demand, record, verdict, name)
            if champions is not None:
                champion = _check_champion(settings, champions, manifest, title)
                if subject := feed.find(package, version):
                    _publish_proof(settings, feed, subject, champion)
    feed.promote(package, version, name)
    return name


def _check_demands(settings: Settings, feed: Feed, view: str) -> None:
    """Refuse a demand that can never hold: in place of the one that was meant, nothing is asked."""
    origin = settings.origin("demand")
    for text in settings.demand if origin != "default" else ():
        named = text.partition("=")[0].strip()
        if named.casefold() == view.casefold():
            continue
        if origin.startswith("flag"):
            hint = f"--demand {view}={text.partition('=')[2]}"
            raise UsageError(f"--demand {text} is not about the view {view}", hint=hint)
        try:
            feed.view(named)
        except (NotFound, Rejected) as error:
            raise UsageError(f"demand {text}: {error.message}", hint=error.hint) from error


def _check(settings: Settings, demand: Demand, record: Json, found: Verdict, view: str) -> None:
    """Raise `Rejected` with the reason unless a build record, or later evidence, is enough."""
    lacks, title, told = demand.lacks(record), found.title, record
    if lacks:
        with suppress(OSError, ValueError):  # there is none, or it proves nothing
            later = checked_record(read_json(Workspace(settings).evidence_of(found.tree)))
            lacks, told = demand.lacks(later), later
    proof = proof_of(told.get("verification", ()))
    if lacks:
        asked = demand.level + (" on the target's own provider" if demand.own else "")
        verify = f"on a machine that can: modelmill verify {title}"
        hint = f"{verify}; or waive it in the catalog and build again"
        if proof and proof.old:
            hint = "build it again: packages carry the samples that they are judged on"
        elif proof and proof.unproven:
            hint = "give the catalog's entry a dataset = { path = ... } and build it again"
        raise Rejected(f"{title} cannot enter {view}, which demands {asked}: {lacks}", hint=hint)
    if proof and proof.kind == SYNTHETIC:
        tell(f"{title} is verified on {proof.samples}")


def _check_champion(settings: Settings, file: Path, manifest: Json, name: str) -> Champion:
    """The champion that a package was built from; raises `Rejected` with the reason for none.

    `name`: of the version, for messages.
    """
    champions = read_champions(settings.path(str(file)), Workspace(settings).targets())
    about = (("model", "id"), ("model", "task"), ("target", "label"))
    model, task, target = (str(_table(manifest, table).get(key, "")) for table, key in about)
    try:
        champion = champion_for(champions, (model, task, target))
    except UsageError as error:
        text = f"{name} is not a champion: {error.message} in {file.name}"
        raise Rejected(text, hint=error.hint or STEP) from None
    if reason := unlike(champion, manifest):
        raise Rejected(f"{name} is not the {champion.told}: {reason}", hint=STEP)
    if champion.proof.emulated:
        text = f"the {champion.told} was measured on an emulator, which proves nothing"
        raise Rejected(text, hint="tune it on the device")
    return champion


def _table(value: Json, key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _publish_proof(settings: Settings, feed: Feed, subject: Published, champion: Champion) -> None:
    """Publish what a champion rests on."""
    proof = champion.proof
    files = {"champion.json": json_bytes(to_json(champion))}
    if tuning := feature("proof")(Workspace(settings), champion):
        files["tuning.json"] = json_bytes(tuning)
    told = {
        "tuning": proof.tuning,
        "comparison": proof.comparison,
        "artifact": proof.artifact,
        "gain": {"percent": proof.gain, "low": proof.low, "high": proof.high},
        "on": dict(proof.runtime),
        "machine": dict(proof.machine),
    }
    publish_record(settings, feed, "champion", subject, files, told)


def _read(folder: Path, name: str, title: str) -> Json:
    """A record of a version; empty: it has none."""
    check = checked_manifest if name == MANIFEST else checked_record
    try:
        return check(read_json(folder / name))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Rejected(f"{title}: its {name} cannot be read: {error}") from error

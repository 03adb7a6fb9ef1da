"""`modelmill feed`: look into a feed, download packages, promote versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import Arguments, Parser, add_verbs, refuse
from flows.output.activity import meter, waiting_for
from flows.output.console import print_json, print_result, tell
from flows.output.quantity import limited, show_moment, show_size
from flows.output.table import render
from machine.files import read_json, temporary_folder
from matrix.errors import Exit, NothingSelected, UsageError
from matrix.slugs import slug

if TYPE_CHECKING:
    from feed.interface import Feed, Published
    from feed.listing import VersionDetails
    from feed.reader import Pulled
    from feed.verdict import CheckSignature, Verdict
    from matrix.model import Profile

_ORT_PACKAGE = "ort-package"
_OF_PROMOTION = ("demand", "key", "targets_file", "state")
_WILD = set("*?[]{}")
_SHOWN = 20
"""Problems that are printed of one package: a damaged document can cause any number."""


def add(parser: Parser) -> None:
    # fmt: off
    verb = add_verbs(parser, "home", "feed", "package")
    add = verb("ls", "list packages, or the versions of a package", _ls).add_argument
    add("name", nargs="?", help="a package, globs allowed; default: all packages")
    add("version", nargs="?", default="*", help="a glob, e.g. '0.0.0-20260609-*'")
    add("--deleted", action="store_true", help="show deleted versions too")
    add = verb("show", "show one version with its files", _show).add_argument
    add("name", help="the package")
    add("version", help="the version")
    settings = ["targets_file", "key"]
    _add_pull(verb("pull", "download versions, and check every file", _pull, settings))
    text = "check files, names, provenance, SBOM and signature"
    add = verb("verify", text, _verify, ["key"]).add_argument
    add("name", nargs="?", help="a package, globs allowed; with --folder, the one that it must be")
    add("version", nargs="?", default="*",
        help="a glob; default: all versions; with --folder, the one that it must be")
    add("--folder", type=Path, help="check a pulled package instead")
    text = "check a version and add it to a view; this cannot be undone"
    add = verb("promote", text, _promote, _OF_PROMOTION).add_argument
    add("name", help="the package")
    add("version", help="the version")
    add("--view", required=True, help="the view, for example release")
    add("--champion", type=Path, metavar="FILE",
        help="a file of champions: the version must be built as its champion says, and the"
             " evidence is published beside it")
    # fmt: on


def _add_pull(parser: Parser) -> None:
    # fmt: off
    add = parser.add_argument
    add("name", nargs="?", help="the package; or select with --stamp")
    add("version", nargs="?", help="the version")
    add("--stamp", help="a whole batch, by its index")
    add("--target", action="append", default=[], metavar="GLOB", help="with --stamp: only targets")
    add("--model", action="append", default=[], metavar="GLOB", help="with --stamp: only models")
    text = "take the packages compiled for a device profile, or the portable ones if there are none"
    add("--for", dest="profile", metavar="PROFILE", help=text)
    add("--as", dest="form", nargs=2, metavar=(_ORT_PACKAGE, "DIR"),
        help="with --stamp and --model: one folder that ONNX Runtime opens as a model package, "
             "with the model's cells as its variants")
    add("--dest", type=Path, default=Path(), help="the folder to write to; default: here")
    add("--files", action="append", default=[], metavar="GLOB", help="only matching files")
    add("--force", action="store_true", help="replace files of the same name")
    # fmt: on


def _open(arguments: Arguments) -> Feed:

    feed = arguments.work.open_feed()
    waiting_for(f"asking the feed {feed.name}")
    return feed


def _ls(arguments: Arguments) -> None:
    from feed.listing import list_packages, list_versions

    feed = _open(arguments)
    if arguments.name is None:
        packages = list(list_packages(feed))
        short = [(one.package, one.versions, _when(one.newest)) for one in packages]
        print_result(arguments, packages, [render(("package", "versions", "newest"), short)])
        return
    name, version, deleted = arguments.name, arguments.version, arguments.deleted
    versions = list(list_versions(feed, name, version, deleted=deleted))
    headers = ("package", "version", "published", "tree", "samples", "views")
    table = render(headers, [_row(one) for one in versions])
    print_result(arguments, [_told(one) for one in versions], [table])


def _show(arguments: Arguments) -> None:
    from feed.listing import show
    from flows.observe.evidence import opening_lines, opening_of, run_on, sharing_of
    from workers.verify.ladder.levels import proof_of

    feed = _open(arguments)
    found = show(feed, arguments.name, arguments.version)
    record = _build_record(feed, found)
    opening, sharing = opening_of(record), sharing_of(record)
    document = {**asdict(found), "published": _told(found.published), "size": found.size}
    document |= {"opening": opening} if opening else {}
    document |= {"sharing": sharing} if sharing else {}
    lines = [*_version_lines(found), *opening_lines(opening)]
    if proof := proof_of((record or {}).get("verification", ())):
        document["samples"] = asdict(proof)
        lines.append(f"verified on {proof}")
    if ran := run_on(record):
        document["run_on"] = str(ran)
        lines.append(f"run on {ran}" + (f": {ran.why}" if ran.why else ""))
    if sharing:
        lines.append(f"{sharing.graphs} graphs share one context of {show_size(sharing.together)}")
    print_result(arguments, document, lines)


def _version_lines(found: VersionDetails) -> Iterator[str]:
    one = found.published
    yield f"{one.package} {one.version}" + (" (deleted)" if one.deleted else "")
    yield f"  {one.description}\n  published {_when(one.published_at)}"
    if one.views:
        yield f"  views: {', '.join(one.views)}"
    rows = [(file.path, show_size(file.size), file.sha256) for file in found.files]
    yield render(("file", "size", "sha256"), rows)


def _build_record(feed: Feed, found: VersionDetails) -> dict[str, Any] | None:
    """How a version was built; None for one that does not say it."""
    from feed.errors import FeedError
    from feed.reader import pull
    from matrix.digest import BUILD_RECORD
    from matrix.manifest import checked_record

    one = found.published
    if BUILD_RECORD not in {file.path for file in found.files}:
        return None
    with temporary_folder("modelmill-show-") as folder:
        try:
            dest = pull(feed, one.package, one.version, folder / "it", (BUILD_RECORD,)).dest
            return dict(checked_record(read_json(dest / BUILD_RECORD)))
        except (FeedError, OSError, ValueError) as error:
            tell(f"{BUILD_RECORD} cannot be read: {error}")
            return None


def _pull(arguments: Arguments) -> Exit:
    from feed.reader import pull
    from feed.selection import version_for

    feed = _open(arguments)
    if arguments.form:
        return _pull_ort_package(arguments, feed)
    profile = arguments.work.profiles().get(arguments.profile) if arguments.profile else None
    if arguments.stamp and not arguments.name:
        return _pull_stamp(arguments, feed, profile)
    name, version, files = arguments.name, arguments.version, arguments.files or ("*",)
    one = name and version and not arguments.stamp
    refuse(
        (not one, "pull needs either a package and a version, or --stamp", ""),
        (arguments.target or arguments.model, "--target and --model go with --stamp", ""),
    )
    dest = Path(name) if arguments.dest == Path() else arguments.dest
    if profile:
        version = version_for(feed, name, version, profile)
    with meter(f"{name} {version}") as progress:
        pulled = pull(
            feed,
            name,
            version,
            dest,
            files,
            progress=progress,
            force=arguments.force,
            signature=_signature(arguments),
        )
    compiled = profile is not None and version.endswith(f"-{slug(profile.label)}")
    _print_pulled(arguments, [(pulled, compiled)], profile)
    return Exit.OK


def _pull_stamp(arguments: Arguments, feed: Feed, profile: Profile | None) -> Exit:
    from feed.errors import FeedError
    from feed.selection import pull_selection
    from matrix.naming import index_name

    if profile and arguments.target:
        raise UsageError(f"--for {profile.label} names the target: leave --target out")
    found = pull_selection(
        feed,
        index_name(arguments.settings.package, arguments.stamp)[0],
        arguments.stamp,
        arguments.dest,
        targets=arguments.target or ("*",),
        models=arguments.model or ("*",),
        profile=profile,
        patterns=arguments.files or ("*",),
        force=arguments.force,
        signature=_signature(arguments),
    )
    taken = [(one, "+" in cell.target) for cell, one in found if not isinstance(one, FeedError)]
    _print_pulled(arguments, taken, profile)
    for cell, one in found:
        if isinstance(one, FeedError):
            tell(f"{cell.id}: {one}")
    if len(taken) == len(found):
        return Exit.OK
    tell(f"{len(found) - len(taken)} of {len(found)} cells are not here")
    return Exit.CELLS_FAILED


def _pull_ort_package(arguments: Arguments, feed: Feed) -> Exit:
    from feed.ort_package import pull_ort_package
    from matrix.naming import index_name

    form, dest = arguments.form
    whole = arguments.stamp and arguments.model
    others = (arguments.name, arguments.profile, arguments.files, arguments.force)
    more = any(others) or arguments.dest != Path()
    refuse(
        (form != _ORT_PACKAGE, f"--as {form}: the only format is {_ORT_PACKAGE}", ""),
        (not whole, f"--as {_ORT_PACKAGE} needs --stamp and --model", ""),
        (more, f"--as {_ORT_PACKAGE} takes whole packages: only --target goes with it", ""),
    )
    made = pull_ort_package(
        feed,
        index_name(arguments.settings.package, arguments.stamp)[0],
        arguments.stamp,
        Path(dest),
        targets=arguments.target or ("*",),
        models=arguments.model,
        signature=_signature(arguments),
    )
    lines = [
        f"{made.model} -> {made.dest}: {show_size(made.size)}",
        f"  components: {', '.join(made.components)}",
        f"  variants: {', '.join(made.variants)}",
    ]
    print_result(arguments, made, lines)
    return Exit.OK


def _print_pulled(
    arguments: Arguments, pulled: list[tuple[Pulled, bool]], profile: Profile | None
) -> None:
    """Print what was pulled and, with a profile, whether each package is compiled for it."""
    lines, documents = [], []
    for one, compiled in pulled:
        size = show_size(sum(file.size for file in one.files))
        what = "is there already" if one.unchanged else f"{len(one.files)} files, {size}"
        if profile:
            what += ", compiled for" if compiled else ", portable: nothing is compiled for"
            what += f" {profile.label}"
        lines.append(f"{one.package} {one.version} -> {one.dest}: {what}")
        documents.append(asdict(one) | ({"compiled": compiled} if profile else {}))
    print_result(arguments, documents, lines)


def _signature(arguments: Arguments) -> CheckSignature | None:
    from flows.packages.signing import signature_check

    return signature_check(arguments.settings)


def _verify(arguments: Arguments) -> Exit:
    name, folder, exact = arguments.name, arguments.folder, not _WILD & set(arguments.version)
    nothing = name is None and folder is None
    # A signature alone does not tell which package it is of: another one would do as well.
    unnamed = folder and not (name and exact) and (name or arguments.settings.key)
    example = "modelmill feed verify PACKAGE VERSION --folder DIR"
    refuse(
        (nothing, "verify needs a package, or --folder with one that was pulled", ""),
        (unnamed, "say which version the folder must be", example),
    )
    good = True
    for verdict in _verdicts(arguments, _signature(arguments)):
        good = good and verdict.ok
        if arguments.json:
            print(json.dumps({**asdict(verdict), "ok": verdict.ok}), flush=True)
        else:
            print("\n".join(_verdict_lines(verdict)), flush=True)
    return Exit.OK if good else Exit.CELLS_FAILED


def _verdicts(arguments: Arguments, signature: CheckSignature | None) -> Iterator[Verdict]:
    from feed.listing import list_versions
    from feed.verify import verify_folder, verify_published

    if arguments.folder:
        must_be = (arguments.name, arguments.version) if arguments.name else None
        yield verify_folder(arguments.folder, name=must_be, signature=signature)
        return
    feed = _open(arguments)
    versions = list(list_versions(feed, arguments.name, arguments.version))
    if not versions:
        raise NothingSelected(f"no version of {arguments.name} matches {arguments.version}")
    work = arguments.work.large_temp
    for one in versions:
        name, version = one.package, one.version
        with (
            meter(f"{name} {version}") as progress,
            temporary_folder("modelmill-verify-", work) as folder,
        ):
            dest = folder / "it"
            verdict = verify_published(
                feed, name, version, dest, signature=signature, progress=progress
            )
        yield verdict


def _verdict_lines(verdict: Verdict) -> list[str]:
    if not verdict.ok:
        lines = [f"  {text}" for text in verdict.problems]
        return [f"FAILED  {verdict.title}", *limited(lines, _SHOWN, "  ... and {} more: --json")]
    about = f"{verdict.package} {verdict.version}"
    what = "" if about == verdict.title else f", {about}"
    notes = "; ".join(f"{one.name}: {one.note}" for one in verdict.checks if one.note)
    told = f"{verdict.files} files{what}" + (f" ({notes})" if notes else "")
    return [f"ok      {verdict.title}: {told}"]


def _promote(arguments: Arguments) -> None:
    from feed.listing import show
    from flows.packages.promotion import promote

    feed = _open(arguments)
    name, version = arguments.name, arguments.version
    view = promote(arguments.settings, feed, name, version, arguments.view, arguments.champion)
    if arguments.json:
        print_json(_told(show(feed, name, version).published))
    else:
        print(f"{name} {version} is in view {view}")


def _told(one: Published) -> dict[str, Any]:
    """A version for machines, with what its description says."""
    return {**asdict(one), "tree": one.tree, "samples": one.samples}


def _row(one: Published) -> tuple[object, ...]:
    state = "deleted" if one.deleted else ",".join(one.views)
    tree, samples = (one.tree or "-")[:16], one.samples or "-"
    return (one.package, one.version, _when(one.published_at), tree, samples, state)


def _when(at: datetime | None) -> str:
    return show_moment(at.timestamp()) if at else "-"

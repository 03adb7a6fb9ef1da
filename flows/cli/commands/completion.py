"""`modelmill completion`: code for a shell that completes commands, flags and their values.

The shell is offered targets, profiles, stamps, catalogs and cells. Whatever cannot be read (a
state, the user's own targets) offers nothing: an error has no place in the middle of a line that is
being typed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from flows.cli.arguments import Arguments, Parser
from flows.settings.workspace import Workspace
from matrix.errors import MillError

SHELLS = ("bash", "zsh", "fish", "powershell")
_EPILOG = """\
bash, zsh:   add  eval "$(modelmill completion bash)"  (or zsh) to ~/.bashrc or ~/.zshrc
fish:        modelmill completion fish > ~/.config/fish/completions/modelmill.fish
powershell:  add  modelmill completion powershell | Out-String | Invoke-Expression  to $PROFILE
"""
Offer = Callable[[Workspace], Iterable[str]]


def add(parser: Parser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh, fish or powershell")


def run(arguments: Arguments) -> None:
    """Print the code; the shell then asks `modelmill` itself, see `flows.cli.main.complete`."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["modelmill"], shell=arguments.shell))


def _targets(work: Workspace) -> Iterable[str]:
    from matrix.targets import load_targets

    return [row.label for row in load_targets(work.own_targets).rows]


def _profiles(work: Workspace) -> Iterable[str]:
    return [profile.label for profile in work.profiles()]


def _stamps(work: Workspace) -> Iterable[str]:
    with work.read_state() as state:
        return [sweep.stamp for sweep in state.sweeps()]


def _cells(work: Workspace) -> Iterable[str]:
    """Those of the sweep that was begun last."""
    with work.read_state() as state:
        newest = state.find_sweep(None)
        return list(state.statuses(newest.id)) if newest else []


def _catalogs(_work: Workspace) -> Iterable[str]:
    from matrix.catalog import packaged

    return packaged()


_OFFERS: dict[str, Offer] = {
    "target": _targets, "profile": _profiles, "compile": _profiles, "stamp": _stamps,
    "batch": _stamps, "before": _stamps, "after": _stamps, "only": _cells, "skip": _cells,
    "cell": _cells, "what": _cells, "catalog": _catalogs,
}  # fmt: skip
"""By the names of arguments."""
_FILES = frozenset({"what", "catalog"})
"""Arguments that may also be files."""


def add_completers(parser: argparse.ArgumentParser, command: str = "") -> None:
    """Give every argument of a command line that is filled what `argcomplete` asks for."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, other in action.choices.items():
                add_completers(other, name)
        elif action.choices is None and (offer := _offer(action, command)):
            setattr(action, "completer", _completer(offer, files=action.dest in _FILES))  # noqa: B010


def _offer(action: argparse.Action, command: str) -> Offer | None:
    if action.dest == "what" and command in {"tune", "onboard"}:
        return _catalogs
    if action.dest == "against":
        return _stamps if action.metavar == "STAMP" else _cells
    return _OFFERS.get(action.dest)


def _completer(offer: Offer, *, files: bool) -> Callable[..., list[str]]:
    def complete(prefix: str, parsed_args: argparse.Namespace, **_more: Any) -> list[str]:
        return [*_offered(offer, parsed_args, prefix), *(_paths(prefix) if files else ())]

    return complete


def _offered(offer: Offer, parsed: argparse.Namespace, prefix: str) -> Iterator[str]:
    with suppress(MillError, OSError):
        known = offer(Arguments(**vars(parsed)).work)
        yield from (value for value in known if value.startswith(prefix))


def _paths(prefix: str) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter()(prefix))

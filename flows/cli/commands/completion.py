"""`modelmill completion`: code for a shell that completes commands, flags and their values."""

from __future__ import annotations

import argparse

from flows.cli.arguments import Arguments, Parser

SHELLS = ("bash", "zsh", "fish", "powershell")
_EPILOG = """\
bash, zsh:   add  eval "$(modelmill completion bash)"  (or zsh) to ~/.bashrc or ~/.zshrc
fish:        modelmill completion fish > ~/.config/fish/completions/modelmill.fish
powershell:  add  modelmill completion powershell | Out-String | Invoke-Expression  to $PROFILE
"""


def add(parser: Parser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh, fish or powershell")


def run(arguments: Arguments) -> None:
    """Print the code; the shell then asks `modelmill` itself, see `flows.cli.main.complete`."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["modelmill"], shell=arguments.shell))

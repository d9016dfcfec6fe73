"""`gliner-bento completion SHELL`: a script that completes commands and flags. shtab, an extra, makes it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gliner_bento.cli.parsers import CommandError, commands_of
from gliner_bento.errors import install_hint

SHELLS = ("bash", "zsh", "tcsh")
EXAMPLES = """examples:
  gliner-bento completion bash > ~/.local/share/bash-completion/completions/gliner-bento
  gliner-bento completion zsh > ~/.zsh/_gliner-bento  # a folder of $fpath
  source <(gliner-bento completion bash)  # in this shell only

exit codes: 0 done; 1 an argument is wrong, or shtab is not installed"""

_FILE_METAVARS = ("FILE", "FOLDER", "PATH", "OUT", "MAPPING")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Print the script."""
    try:
        import shtab  # noqa: PLC0415  # an extra
    except ImportError:
        raise CommandError(f"completion: needs shtab; {install_hint('completion')}") from None
    _complete_files(options.parser, shtab.FILE)
    sys.stdout.write(shtab.complete(options.parser, shell=options.shell) + "\n")
    return 0


def _complete_files(parser: argparse.ArgumentParser, complete: Any) -> None:
    for action in parser._actions:
        if action.type is Path or any(name in str(action.metavar) for name in _FILE_METAVARS):
            action.complete = complete  # type: ignore[attr-defined]
    for command_parser in commands_of(parser).values():
        _complete_files(command_parser, complete)

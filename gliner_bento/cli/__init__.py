"""The command line: `gliner-bento COMMAND`, one module each, listed in `flags`.

Importing it loads no server code."""

from __future__ import annotations

from collections.abc import Sequence

from gliner_bento.cli.flags import run
from gliner_bento.configuration import SettingsError
from gliner_bento.exits import write_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A wrong flag, setting or port prints one line and returns 1."""
    try:
        return run(argv)
    except SettingsError as error:
        write_line(str(error))
        return 1

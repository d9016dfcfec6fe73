"""The command line: `gliner-bento COMMAND`, one module each, listed in `flags`.

Importing it loads no server code."""

from __future__ import annotations

from collections.abc import Sequence

from gliner_bento.cli.flags import run
from gliner_bento.configuration import SettingsError
from gliner_bento.exits import install, write_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A wrong flag, setting or port prints one line and returns 1,
    and so does a package that is missing."""
    try:
        return run(argv)
    except SettingsError as error:
        write_line(str(error))
    except ModuleNotFoundError as missing:
        if str(missing.name).startswith("gliner_bento"):
            raise
        write_line(f"{missing.name} is not installed; {install('serve')}")
    return 1

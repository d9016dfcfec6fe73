"""The command line: `gliner-bento COMMAND`. Each command is a module of this package; `flags` lists them.

Importing this package loads no server code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gliner_bento.cli import streams
from gliner_bento.cli.flags import run
from gliner_bento.errors import install_hint
from gliner_bento.process.exits import INTERRUPTED, write_line
from gliner_bento.settings.configuration import SettingsError

_BROKEN_PIPE = 141
"""128 + SIGPIPE, as shells report it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. For a wrong flag, setting or port, a missing package, or output that
    cannot be written, prints one line and returns 1.

    If the reader of its output closes the pipe (`| head`), returns 141 without a message; after Ctrl+C, 130.
    """
    streams.prepare()
    try:
        try:
            return run(argv)
        finally:
            sys.stdout.flush()
    except SettingsError as error:
        write_line(str(error))
    except ModuleNotFoundError as missing:
        if str(missing.name).startswith("gliner_bento"):
            raise
        write_line(f"{missing.name} is not installed; {install_hint('serve')}")
    except BrokenPipeError:
        _discard_output()
        return _BROKEN_PIPE
    except OSError as error:  # commands report those of their files
        _discard_output()
        write_line(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        write_line("interrupted")
        return INTERRUPTED
    return 1


def _discard_output() -> None:
    """Send what is left of the output to the null device, else Python's flush at exit fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

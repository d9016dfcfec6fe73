"""How a process ends that cannot work: with one line on standard error and exit code 1."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

_MAX_CHARS = 600


class StartupError(Exception):
    """The server cannot start. The message says what is wrong, why, and what to do."""


def one_line(error: BaseException) -> str:
    """The error's message on one line of limited length; its type if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


def install(extra: str) -> str:
    """How to install a missing `extra`: the end of an error message."""
    return f"install the extra {extra} in the clone: pip install -e '.[{extra}]' (docs/quickstart.md)"


def write_line(message: str) -> None:
    """Write `message` to standard error."""
    sys.stderr.write(f"gliner-bento: {message}\n")
    sys.stderr.flush()


def exit_with(message: str) -> NoReturn:
    """Write `message` and exit."""
    write_line(message)
    raise SystemExit(1)


def exit_on_sigterm() -> None:
    """Exit as on an error, with 143, so that nothing half-written remains."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def is_alive(pid: int) -> bool:
    """Whether a process of this user exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

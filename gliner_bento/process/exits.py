"""Ends a process that cannot work: one line on standard error and exit code 1."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from gliner_bento.settings import Settings, SettingsError

INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl+C, as shells report it."""


def load_or_exit() -> Settings:
    """`Settings.load()`; an invalid setting ends the process."""
    try:
        return Settings.load()
    except SettingsError as error:
        exit_with(str(error))


def write_line(message: str) -> None:
    """Write `message` to standard error."""
    sys.stderr.write(f"gliner-bento: {message}\n")
    sys.stderr.flush()


def exit_with(message: str) -> NoReturn:
    """Write `message` and exit."""
    write_line(message)
    raise SystemExit(1)


def exit_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit(143), so that cleanup runs and no half-written file remains."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

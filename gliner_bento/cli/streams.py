"""The standard streams of a command: none is missing, and each can write every text, and writes it whole."""

from __future__ import annotations

import codecs
import json
import os
import sys
from io import RawIOBase, TextIOWrapper

_ERRORS = "gliner_bento.json_escapes"
"""The name of `_json_escapes` as an error handler of Python's codecs."""


def prepare() -> None:
    """Open the null device in the place of each stream that is closed (`<&-`), which Python sets to None. Let standard
    output and standard error write characters that their encoding lacks as escapes, and give them a buffer if
    `PYTHONUNBUFFERED` has taken it: without one, Python ignores that a full disk took only a part of a text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process
    codecs.register_error(_ERRORS, _json_escapes)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper) and isinstance(stream.buffer, RawIOBase):
            stream = open(stream.fileno(), "w", buffering=1, encoding=stream.encoding, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    r"""Escapes as in JSON (`\u00e9`), so that JSON stays valid in every encoding. Python's own handler
    `backslashreplace` writes `\xe9`, which is no JSON.

    Surrogates are bytes of a file's name that are not UTF-8; they can be read back from JSON.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end

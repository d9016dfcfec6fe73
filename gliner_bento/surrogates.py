"""Replaces lone surrogates with U+FFFD. PDF extractors write them; no UTF-8 text and no request can contain one.

A replacement has the length of what it replaces, in characters, so offsets stay valid.
"""

from __future__ import annotations

import re

_LONE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")
# An escape of a surrogate without its other half, in JSON without escaped backslashes. It begins with a literal, which
# `re` finds fast.
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
# Stands for an escaped backslash. No UTF-8 text has these bytes.
_BACKSLASH = b"\xff\xfe"


def without_surrogates(text: str) -> str:
    """A text with U+FFFD for each surrogate. Also for each of a pair: Python joins pairs when it decodes."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def without_escaped_surrogates(content: bytes) -> bytes:
    r"""JSON with `\ufffd` for each `\u` escape of a surrogate that is not half of a pair."""
    if not _ESCAPED.search(content) or _BACKSLASH in content:
        return content
    # Without a call for each escape: a body may have millions of them.
    unescaped = content.replace(rb"\\", _BACKSLASH)
    return _HALF.sub(rb"\\ufffd", unescaped).replace(_BACKSLASH, rb"\\")

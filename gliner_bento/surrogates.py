"""Replaces lone surrogates with U+FFFD. PDF extractors write them; no UTF-8 text and no request can contain one.

A replacement has the length of what it replaces, in characters, so offsets stay valid.
"""

from __future__ import annotations

import re

_LONE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")
# Any escape of JSON. The group `half` matches a surrogate without its other half.
_ESCAPE = re.compile(rb"\\(?:[^u]|u(?:[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>[dD][89a-fA-F]..)|))", re.DOTALL)


def without_surrogates(text: str) -> str:
    """A text with U+FFFD for each surrogate. Also for each of a pair: Python joins pairs when it decodes."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def without_escaped_surrogates(content: bytes) -> bytes:
    r"""JSON with `\ufffd` for each `\u` escape of a surrogate that is not half of a pair."""
    if not _ESCAPED.search(content):
        return content
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["half"] else match[0], content)

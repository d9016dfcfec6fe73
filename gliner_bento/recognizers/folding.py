"""The text that recognizers read: Unicode's spaces, dashes and digits are replaced with ASCII ones, and invisible
characters are left out."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def folded(text: str) -> tuple[str, Sequence[int]]:
    """The text that the recognizers read, and for each of its characters the index in `text`."""
    if text.isascii():
        return text, range(len(text))
    table = {ord(char): _fold(char) for char in set(text) if not char.isascii()}
    if "" not in table.values():
        return text.translate(table), range(len(text))
    return text.translate(table), [index for index, char in enumerate(text) if table.get(ord(char), char)]


def _fold(char: str) -> str:
    """The replacement of a character: one character, or the empty string."""
    kind = unicodedata.category(char)
    if kind == "Cf" or "\ufe00" <= char <= "\ufe0f":  # format characters, variation selectors
        return ""
    if kind in ("Zs", "Pd") or char == "\u2212":
        return " " if kind == "Zs" else "-"
    if kind == "Nd":
        return str(unicodedata.decimal(char))
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 else char

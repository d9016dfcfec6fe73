"""The form in which names of mentions are compared."""

from __future__ import annotations

import unicodedata


def normalized(text: str) -> str:
    """The normal form of a name: Unicode NFKC, case folded, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def folded(text: str) -> str:
    """A text in which another case is looked for: NFKC, case folded. The dotted and the dotless i of Turkish are one
    letter: a name is written IŞIK and Işık, or İBRAHİM and ibrahim, and the small form of I depends on the language."""
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFKC", text).casefold().replace("i\u0307", "i").replace("ı", "i")

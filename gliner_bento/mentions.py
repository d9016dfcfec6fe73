"""The form in which names of mentions are compared."""

from __future__ import annotations

import unicodedata


def normalized(text: str) -> str:
    """The normal form of a name: Unicode NFKC, case folded, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())

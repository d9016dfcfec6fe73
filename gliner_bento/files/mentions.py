"""When two mentions have the same name."""

from __future__ import annotations

import unicodedata


def normalized(text: str) -> str:
    """The form in which names are compared: Unicode NFKC, without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())

"""Counts the values of a JSON body while it arrives: in memory, a parsed `[[[],[]]]` takes hundreds of times its bytes.

The count equals the parser's up to the first syntax error, where the parser ends.
"""

from __future__ import annotations

MAX_VALUES = 2**18
"""Lists, objects and their items in a body: more than the default limits on texts and labels allow in a batch."""


class JsonValues:
    """The count for one body."""

    def __init__(self) -> None:
        self._count = 0
        self._in_string = False
        self._held = b""  # a backslash, whose character is in the next chunk

    def add(self, chunk: bytes) -> int:
        """Count the values in the next chunk; returns the count so far."""
        data = self._held + chunk
        backslashes = len(data) - len(data.rstrip(b"\\"))
        self._held = b"\\" if backslashes % 2 else b""
        data = data.removesuffix(self._held)
        parts = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self._count += outside.count(b"[") + outside.count(b"{") + outside.count(b",")
        return self._count

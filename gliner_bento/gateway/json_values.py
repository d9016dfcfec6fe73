"""Counts the values of a JSON body as it arrives. A body with too many is refused before it is parsed: in memory, a
parsed `[[],[],...]` takes hundreds of times its bytes.

The count covers what a parser reads: all values up to the first syntax error.
"""

from __future__ import annotations

MAX_VALUES = 2**18
"""Maximum number of values in a body. A batch within the default limits on texts and labels has fewer."""


class JsonValues:
    """Counts the values of one body: its lists and objects, and one value for each comma."""

    def __init__(self) -> None:
        self._count = 0
        self._in_string = False
        self._held = b""  # the backslash of an escape that continues in the next chunk

    def add(self, chunk: bytes) -> int:
        """Count the values in the next chunk; returns the count so far."""
        data = self._held + chunk
        backslashes = len(data) - len(data.rstrip(b"\\"))
        self._held = b"\\" if backslashes % 2 else b""
        data = data.removesuffix(self._held)
        parts = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')  # alternately inside and outside strings
        outside = b"".join(parts[1 if self._in_string else 0 :: 2])
        if len(parts) % 2 == 0:  # an odd number of quotation marks
            self._in_string = not self._in_string
        self._count += outside.count(b"[") + outside.count(b"{") + outside.count(b",")
        return self._count

"""Bytes of text files: their encoding, byte order mark and line ends, all of which are kept."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import IO

from gliner_bento.files.records.readers import byte_order_mark, not_encoded


class Decoded:
    """The text of a file. encoding: of a file without a byte order mark."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        head = file.read(4)
        self.mark, self.encoding = byte_order_mark(head, encoding)
        self._head, self._file = head[len(self.mark) :], file

    def lines(self) -> Iterator[str]:
        """Lines with their ends, `\\n`, `\\r` or `\\r\\n`. Raises ValueError for bytes that are not of the encoding."""
        source = _Joined(self._head, self._file)
        written = hashlib.sha256()
        try:
            for line in io.TextIOWrapper(io.BufferedReader(source), self.encoding, errors="strict", newline=""):
                written.update(self.encode(line))
                yield line
        except UnicodeDecodeError as error:
            raise ValueError(not_encoded(error)) from None
        if written.digest() != source.read_bytes.digest():
            raise ValueError(f"{self.encoding} does not keep every byte of the file; choose another --encoding")

    def encode(self, text: str) -> bytes:
        """The text in the file's encoding. Raises ValueError."""
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ValueError(f"{error.object[error.start]!r} cannot be written in {self.encoding}") from None


class _Joined(io.RawIOBase):
    """The bytes that were read already, then the file."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head, self._file = head, file
        self.read_bytes = hashlib.sha256()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """The next bytes."""
        piece = self._head[: len(buffer)] or self._file.read(len(buffer))
        self._head = self._head[len(piece) :] if self._head else b""
        self.read_bytes.update(piece)
        buffer[: len(piece)] = piece
        return len(piece)

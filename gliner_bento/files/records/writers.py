"""Writes records in chunks, and syncs each chunk to disk before the next. A killed run continues after the last chunk
in its checkpoint. The file gets its final name when it is complete."""

from __future__ import annotations

import csv
import gzip
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, pyarrow
from gliner_bento.storage.files import sync

FORMATS = (".jsonl", ".jsonl.gz", ".csv", ".parquet")
_GROUP_ROWS, _GROUP_BYTES = 20_000, 64 * 2**20


class ChunkWriter(ABC):
    """position: length of the file in bytes."""

    def __init__(self, path: Path, unfinished: Path | None = None) -> None:
        self._path, self._unfinished = path, unfinished or path
        self.position = 0

    def resume(self, position: int) -> None:
        """Truncate the file to `position` bytes."""
        with self._unfinished.open("ab") as file:
            if file.tell() < position:
                raise StartupError(f"{self._unfinished}: shorter than its checkpoint says; start with --overwrite")
            file.truncate(position)
        self.position = position

    def write(self, rows: Sequence[Row]) -> None:
        """Append a chunk."""
        self._append(self._encoded(rows))

    @abstractmethod
    def _encoded(self, rows: Sequence[Row]) -> bytes:
        """The bytes of a chunk."""

    def _append(self, content: bytes) -> None:
        with self._unfinished.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            self.position = file.tell()

    def finish(self) -> None:
        """Rename the file to its final name, if it does not have it yet."""
        if self._unfinished.exists():
            os.replace(self._unfinished, self._path)


class JsonLines(ChunkWriter):
    """JSON lines. In a .gz file, each chunk is a gzip member."""

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        try:
            content = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        except (TypeError, ValueError, RecursionError) as error:
            raise StartupError(f"{self._path}: {one_line(error)}; write .parquet, which keeps all types") from None
        if self._path.suffix == ".gz" and rows:
            content = gzip.compress(content, mtime=0)
        return content


class Csv(ChunkWriter):
    """A row for each entity. Records must have `file`, `record` and `entities`."""

    COLUMNS = ("file", "record", "start", "end", "text", "label", "score")

    def resume(self, position: int) -> None:
        """Truncate; an empty file gets the header."""
        super().resume(position)
        if not position:
            self._append(",".join(self.COLUMNS).encode() + b"\r\n")

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        content = io.StringIO(newline="")
        lines = csv.DictWriter(content, self.COLUMNS)
        for row in rows:
            lines.writerows({"file": row["file"], "record": row["record"], **entity} for entity in row["entities"])
        return content.getvalue().encode("utf-8", "replace")


class Parquet(ChunkWriter):
    """Chunks are Arrow streams in one file, which `finish` converts to Parquet."""

    def __init__(self, path: Path, unfinished: Path, schema: Any) -> None:
        super().__init__(path, unfinished)
        self._schema = schema

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        pa = pyarrow()
        sink = pa.BufferOutputStream()
        try:
            with pa.ipc.new_stream(sink, self._schema) as stream:
                stream.write_table(pa.Table.from_pylist(list(rows), self._schema))
        except (pa.ArrowException, OverflowError) as error:
            raise StartupError(f"{self._path}: {one_line(error)}; write .jsonl, which has no column types") from None
        return bytes(sink.getvalue())

    def finish(self) -> None:
        """Write the Parquet file."""
        if self._unfinished.exists():
            merged = self._unfinished.with_suffix(".merged")
            with pyarrow().parquet.ParquetWriter(merged, self._schema) as writer:
                for group in self._groups():
                    writer.write_table(group)
            sync(merged)
            os.replace(merged, self._path)
            self._unfinished.unlink()

    def _groups(self) -> Iterator[Any]:
        """The chunks, joined to larger row groups."""
        pa = pyarrow()
        group = self._schema.empty_table()
        with pa.OSFile(str(self._unfinished)) as chunks:
            while chunks.tell() < chunks.size():
                group = pa.concat_tables([group, pa.ipc.open_stream(chunks).read_all()])
                if group.num_rows >= _GROUP_ROWS or group.nbytes >= _GROUP_BYTES:
                    yield group
                    group = self._schema.empty_table()
        if group.num_rows:
            yield group

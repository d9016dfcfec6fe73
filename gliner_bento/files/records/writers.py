"""Writes records in chunks, each of which is on the disk before the next begins.

A killed run continues after the last chunk that its checkpoint names. All writers have `position`, which `resume` needs
to drop what was written after it (0: everything), `write` to append a chunk, and `finish` to give the file its name,
which may be repeated.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gliner_bento.errors import StartupError, one_line
from gliner_bento.files.records.columns import Row, pyarrow
from gliner_bento.storage.files import sync

FORMATS = (".jsonl", ".jsonl.gz", ".csv", ".parquet")
_GROUP_ROWS, _GROUP_BYTES = 20_000, 64 * 2**20


class JsonLines:
    """Chunks are appended to one file; compressed, each is a member of the gzip file."""

    def __init__(self, path: Path, unfinished: Path | None = None) -> None:
        self._path, self._unfinished = path, unfinished or path
        self.position = 0

    def resume(self, position: int) -> None:
        """position: bytes."""
        with self._unfinished.open("ab") as file:
            if file.tell() < position:
                raise StartupError(f"{self._unfinished}: shorter than its checkpoint says; start with --overwrite")
            file.truncate(position)
        self.position = position

    def write(self, rows: Sequence[Row]) -> None:
        """Append a chunk."""
        self._append(self._encoded(rows))

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        try:
            content = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        except (TypeError, ValueError) as error:
            raise StartupError(f"{self._path}: {one_line(error)}; .parquet output keeps all types") from None
        if self._path.suffix == ".gz" and rows:
            content = gzip.compress(content, mtime=0)
        return content

    def _append(self, content: bytes) -> None:
        with self._unfinished.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            self.position = file.tell()

    def finish(self) -> None:
        """Give the file its name."""
        if self._unfinished.exists():
            os.replace(self._unfinished, self._path)


class Csv(JsonLines):
    """A row for each entity: where its record is, and the entity. Takes rows of `file`, `record` and `entities`."""

    COLUMNS = ("file", "record", "start", "end", "text", "label", "score")

    def resume(self, position: int) -> None:
        """As `JsonLines`."""
        super().resume(position)
        if not position:
            self._append(",".join(self.COLUMNS).encode() + b"\r\n")

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        content = io.StringIO(newline="")
        lines = csv.DictWriter(content, self.COLUMNS)
        for row in rows:
            lines.writerows({"file": row["file"], "record": row["record"], **entity} for entity in row["entities"])
        return content.getvalue().encode("utf-8", "replace")


class Parquet:
    """Chunks are files of a folder, merged at the end."""

    def __init__(self, path: Path, unfinished: Path, schema: Any) -> None:
        self._path, self._folder, self._schema = path, unfinished, schema
        self._pq = pyarrow().parquet
        self.position = 0

    def resume(self, position: int) -> None:
        """position: chunks."""
        self._folder.mkdir(exist_ok=True)
        kept = {self._part(number) for number in range(position)}
        for file in set(self._folder.iterdir()) - kept:
            file.unlink()
        if missing := next((part for part in sorted(kept) if not part.exists()), None):
            raise StartupError(f"{missing}: is missing; start with --overwrite")
        self.position = position

    def write(self, rows: Sequence[Row]) -> None:
        """Append a chunk."""
        pa = pyarrow()
        part = self._part(self.position)
        try:
            self._pq.write_table(pa.Table.from_pylist(list(rows), self._schema), part)
        except (pa.ArrowException, OverflowError) as error:
            raise StartupError(f"{self._path}: {one_line(error)}; .jsonl output has no types") from None
        sync(part)
        sync(self._folder)
        self.position += 1

    def finish(self) -> None:
        """Give the file its name."""
        if not self._folder.exists():
            return
        merged = self._folder / "merged"
        with self._pq.ParquetWriter(merged, self._schema) as writer:
            for group in self._groups():
                writer.write_table(group)
        sync(merged)
        os.replace(merged, self._path)
        shutil.rmtree(self._folder)

    def _groups(self) -> Iterator[Any]:
        """Row groups of a size that readers like."""
        group = self._schema.empty_table()
        for number in range(self.position):
            part = self._pq.read_table(self._part(number), schema=self._schema)
            group = pyarrow().concat_tables([group, part])
            if group.num_rows >= _GROUP_ROWS or group.nbytes >= _GROUP_BYTES:
                yield group
                group = self._schema.empty_table()
        if group.num_rows:
            yield group

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:08}.parquet"


Writer = JsonLines | Parquet

"""`gliner-bento extract`: entities, relations, classifications and structures of one text."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import CommandError
from gliner_bento.documents.base import DocumentError, kind_of
from gliner_bento.errors import StartupError
from gliner_bento.files.records.readers import ReadOptions, read_document
from gliner_bento.files.records.sources import Source
from gliner_bento.process.exits import write_line
from gliner_bento.tasks.extraction import OPTIONAL_PARTS, ExtractResponse

EXAMPLES = """examples:
  gliner-bento extract "Ada Lovelace lived in London." --labels person,city
  gliner-bento extract letter.txt --labels @labels.yaml --table
  gliner-bento extract "What a day!" --classify "tone=good,bad" --model ./gliclass
  gliner-bento extract order.txt --structures '{"order": ["product", "price"]}' --model ./gliner2
  gliner-bento extract letter.pdf --labels person,city
  cat letter.txt | gliner-bento extract --labels person --json --url http://localhost:3000

exit codes: 0 done; 1 an argument, a setting, the model or the server is wrong, and one line says which; 2 the file, or
a part of a document, cannot be read"""


UNREADABLE = 2
_LIKE_A_PATH = re.compile(r"(~|\.{1,2})?/\S.*|\S+/\S+|\S+\.[A-Za-z]\w{1,9}")
"""A path with a slash, or a name with a suffix; with white space only if it begins with `/`, `~/`, `./` or `../`."""


class _Unreadable(Exception):
    """The file with the text cannot be read; the message names it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT|FILE|-",
        help="a text, or a file if it looks like a path; default: -, standard input",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--table", action="store_true", help="show tables instead of the text")
    output.add_argument("--json", action="store_true", help="print the answer of /v1/extract")
    backend.add_flags(parser, several=False)
    backend.add_schema_flags(parser)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print the extraction."""
    labels, fields = backend.names(options.labels, "--labels"), backend.request_fields(options)
    if not labels and not fields.keys() & {part.option for part in OPTIONAL_PARTS}:
        raise CommandError("extract: --labels (names, separated by commas), --classify or --structures is required")
    try:
        text, is_whole = _read(options.text)
    except _Unreadable as error:
        write_line(f"extract: {error}")
        return UNREADABLE
    _print(options, text, asyncio.run(_extract(options, flags, text, {"labels": labels, **fields})))
    return 0 if is_whole else UNREADABLE


async def _extract(
    options: argparse.Namespace, flags: Mapping[str, Any], text: str, fields: dict[str, Any]
) -> ExtractResponse:
    async with backend.client(options, flags, backend.one_off) as client:
        answer: ExtractResponse = await client.extract(text, **fields)
        return answer


def _print(options: argparse.Namespace, text: str, result: ExtractResponse) -> None:
    if options.json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        return
    from gliner_bento.cli import show  # noqa: PLC0415

    console = show.console()
    shown = show.tables(result) if options.table else [show.in_text(text, result)]
    for part in shown:
        console.print(part)
    for warning in result.warnings:
        sys.stderr.write(f"gliner-bento: warning: {warning.message}\n")


def _read(source: str | None) -> tuple[str, bool]:
    """The text, and whether it is all of its document.

    Raises `CommandError` without one, and `_Unreadable` for a file that is missing, no UTF-8 text, or a document that
    cannot be read.
    """
    if source is None and sys.stdin.isatty():
        raise CommandError("extract: a text, a file or - is required")
    try:
        if source is None or source == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig"), True
        if _LIKE_A_PATH.fullmatch(source) or os.path.isfile(source):  # `Path.is_file` raises if the name is too long
            if kind_of(source):
                return _document(Path(source))
            return Path(source).read_bytes().decode("utf-8-sig"), True
    except UnicodeDecodeError as error:
        raise _Unreadable(f"{source or '-'}: not UTF-8: byte {error.start}") from None
    except OSError as error:
        raise _Unreadable(f"{source}: {error.strerror}; to extract from the name itself, pipe it in") from None
    return source, True


def _document(path: Path) -> tuple[str, bool]:
    """The texts of a document, with an empty line between them, and whether these are all. Raises OSError and
    `_Unreadable`."""
    try:
        document = read_document(Source(path, path.name, "document"), ReadOptions())
    except (DocumentError, StartupError) as error:
        raise _Unreadable(f"{path}: {error}") from None
    for name, reason in document.not_read.items():
        write_line(f"extract: {path}: {name}: {reason}")
    return "\n\n".join(record.text for record in document.records), not document.not_read

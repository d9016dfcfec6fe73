"""`gliner-bento restore`: a text with the originals that `redact --sealed` has replaced; and the files of both."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gliner_bento.cli.backend import failing_in_one_line
from gliner_bento.cli.parsers import DEFAULT_URL, CommandError, add_json, add_server
from gliner_bento.process.exits import write_line
from gliner_bento.redact_types import RestoreResponse
from gliner_bento.storage.files import side_file

SOME_LEFT = 2
EXAMPLES = f"""examples:
  gliner-bento restore answer.txt --sealed turn.sealed
  cat answer.txt | gliner-bento restore --sealed turn.sealed -o letter.txt --url https://gliner.example.org

exit codes: 0 done; 1 an argument, the sealed mapping or the server is wrong, one line says which, and nothing is
written; {SOME_LEFT} written, but with placeholders that are unknown or ambiguous: one line lists them"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("input", nargs="?", default="-", metavar="FILE|-", help="a text; default: standard input")
    parser.add_argument(
        "--sealed", type=Path, required=True, metavar="FILE", help="the sealed mapping of `redact --sealed`"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write (default: standard output)")
    add_server(parser, f"the server that has sealed it (default: {DEFAULT_URL})", models=False, default=DEFAULT_URL)
    add_json(parser, "print the answer of /v1/restore")


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Restore a text."""
    from gliner_bento.client import Client  # noqa: PLC0415

    with failing_in_one_line("restore", options.url):
        mapping = read_sealed(options.sealed)
        if mapping is None:
            raise CommandError(f"restore: --sealed: {options.sealed}: no such file, or empty")
        content = sys.stdin.buffer.read() if options.input == "-" else Path(options.input).read_bytes()
        with Client(options.url, api_key=options.api_key) as client:
            answer = client.restore(content.decode(), mapping)
        restored = json.dumps(asdict(answer)) + "\n" if options.json else answer.texts[0]
        if options.output and options.output != Path("-"):
            write_whole(options.output, restored.encode())
        else:
            sys.stdout.buffer.write(restored.encode())
            sys.stdout.buffer.flush()
    return _report(answer)


def _report(answer: RestoreResponse) -> int:
    left = [*answer.unknown, *([f"{answer.ambiguous} ambiguous"] if answer.ambiguous else [])]
    if left:
        write_line(f"restore: not restored: {', '.join(left)}")
    return SOME_LEFT if left else 0


def read_sealed(path: Path) -> str | None:
    """The sealed mapping in a file; None if there is no file, or an empty one. Raises OSError and ValueError."""
    try:
        return path.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file as a whole, or leave it as it is. mode: of a new file, less what the umask takes. Raises OSError."""
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_bytes(content)
        return
    part = side_file(path, f"{os.getpid()}.gliner-bento-part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise

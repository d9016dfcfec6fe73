"""The server's secret keys for redaction: a file with a key per line, or the keys themselves. The first one seals
mappings; all of them open mappings, so that keys can be replaced.

A file that does not exist is made, with one key, and readable by its owner only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from pathlib import Path

from gliner_bento.errors import StorageUnavailable
from gliner_bento.storage.files import in_cache, sync

logger = logging.getLogger(__name__)

MIN_KEY_CHARS = 32
_BASE64 = re.compile(rf"[A-Za-z0-9+/]{{{MIN_KEY_CHARS},}}={{0,2}}")
_SEPARATORS = re.compile(r"[\s,]+")
DEFAULT_FILE = Path("~/.cache/gliner-bento/redaction.key")


def is_path(source: str) -> bool:
    """Whether `source` is the path of a file, instead of keys. Keys in Base64 (`openssl rand -base64 32`) have slashes,
    too: what ends with `=` is no path, nor is what looks like keys and is in no folder, unless it begins with a slash.
    """
    return "/" in source and not source.endswith("=") and (source.startswith("/") or not may_be_keys(source))


def may_be_keys(path: str) -> bool:
    """Whether a path of which neither the file nor its folder exists looks like keys in Base64."""
    kinds = (str.isupper, str.islower, str.isdigit)  # nearly every random key has all of them
    pieces = _SEPARATORS.split(path.strip())
    is_random = all(_BASE64.fullmatch(piece) and all(any(map(kind, piece)) for kind in kinds) for piece in pieces)
    folder = os.path.dirname(path)
    return is_random and not os.path.exists(path) and (folder == "/" or not os.path.isdir(folder))


def keys_in(content: str) -> list[bytes]:
    """Keys that are separated by white space or commas. Raises ValueError; its message has no key."""
    keys = [key for key in _SEPARATORS.split(content) if key]
    if not keys:
        raise ValueError("has no key")
    if any(len(key) < MIN_KEY_CHARS for key in keys):
        raise ValueError(f"a key must have at least {MIN_KEY_CHARS} characters, without spaces and commas")
    return [key.encode() for key in keys]


def read_keys(source: str | None) -> list[bytes]:
    """The keys of a file, which is made if it does not exist, or in `source` itself. None: the file is `DEFAULT_FILE`.
    Raises `StorageUnavailable`."""
    if source is not None and not is_path(source):
        return keys_in(source)
    file = in_cache(DEFAULT_FILE) if source is None else Path(source)
    try:
        with contextlib.suppress(FileExistsError):
            if not file.exists():
                _make(file)
        return keys_in(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        logger.error("redaction_key: %s: %s", file, reason)
        raise StorageUnavailable("the server has no key for redaction (redaction_key); its log says why") from None


def _make(file: Path) -> None:
    """Make a file with one key. Raises FileExistsError if another process makes it first, and OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as written:
            written.write(secrets.token_urlsafe(32) + "\n")
        sync(whole)
        os.link(whole, file)  # unlike a rename, it never replaces another process's key
        sync(file.parent)
    finally:
        whole.unlink(missing_ok=True)

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
    """Whether `source` is the path of a file, instead of keys. Keys in Base64 have slashes, too (`openssl rand -base64
    32`): what looks like them is a path only if the file or its folder exists."""
    if "/" not in source:
        return False
    keys = _SEPARATORS.split(source.strip())
    return not all(map(_is_random_base64, keys)) or _exists(Path(source).expanduser())


def _is_random_base64(text: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)  # almost every random key has all three; a path has a dot or none
    return bool(_BASE64.fullmatch(text)) and all(any(map(is_kind, text)) for is_kind in kinds)


def _exists(file: Path) -> bool:
    try:
        return file.exists() or file.parent != Path() and file.parent.is_dir()
    except OSError:  # no name of a file can be that long
        return False


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

"""API keys: the format of their file, their hashes, and the lookup of a key. Knows neither HTTP nor routes.

A key is 256 random bits, so one round of SHA-256 is enough to hide it. The file has only hashes:

    - name: team-a
      sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
      scopes: [extract]
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from gliner_bento.privacy.lists import Lists
from gliner_bento.storage.lists import checked, place_of
from gliner_bento.tasks.lists import AllowList, DenyList

logger = logging.getLogger(__name__)

KeyScope = Literal["extract", "adapters", "metrics", "admin"]
"""What a key may call; `admin` includes the others."""

ALL_SCOPES: frozenset[KeyScope] = frozenset(get_args(KeyScope))
NAME_PATTERN = r"^[A-Za-z0-9_.:\-]{1,128}$"

_Name = Annotated[str, Field(pattern=NAME_PATTERN)]
_CHECK_INTERVAL_S = 1.0
"""Minimum time between two checks of the file for changes. A file that is written in place must be the same at two."""
_SHORTER_S = 60.0
"""How long a file is not read that was written in place and lacks the end of the previous one. It may still be written,
or its end may be lost; if entries were deleted on purpose, their keys must not be valid for much longer."""


class ApiKey(BaseModel):
    """An entry of the file. tenant: None means the key's name. The fields after `tenant` are those of `Tenant`;
    `allow_list` and `deny_list` are its `lists`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: _Name
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: frozenset[KeyScope] = frozenset({"extract"})
    tenant: _Name | None = None
    crosses_tenants: bool = False
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    max_concurrency: Annotated[int, Field(ge=0)] | None = None
    max_requests_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    allow_list: AllowList | None = None
    deny_list: DenyList | None = None

    @model_validator(mode="after")
    def _check_lists(self) -> ApiKey:
        self.lists  # noqa: B018  # raises ValueError
        return self

    @cached_property
    def lists(self) -> Lists:
        """Its lists."""
        return checked(self.allow_list, self.deny_list)


_entries = TypeAdapter(list[ApiKey])
_SHORTER = (
    "API keys: the file lost its end (%d of %d characters are left); the previous keys stay valid for %g s more. "
    "Replace the file by renaming a complete one over it: that counts immediately"
)
_NO_LIST = "not a list of API keys in YAML or JSON"


def new_key() -> str:
    """A new key."""
    return f"gliner_{secrets.token_urlsafe(32)}"


def hash_of(key: str) -> str:
    """The hash of a key, in the form that the file has."""
    return hashlib.sha256(key.encode()).hexdigest()


def is_content(source: str) -> bool:
    """Whether `source` has the entries themselves, instead of the path of a file."""
    return source.lstrip().startswith(("[", "- ")) or "\n" in source


def read_keys(source: str) -> Sequence[ApiKey]:
    """The entries of a YAML or JSON file, or of `source` itself. Raises ValueError; its message has no values."""
    return _keys_in(source if is_content(source) else _content_of(source))


def _content_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError("neither a file nor a list of API keys") from None
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(_NO_LIST) from None


def _keys_in(content: str) -> Sequence[ApiKey]:
    try:
        keys = _entries.validate_python(yaml.safe_load(content))
    except (yaml.YAMLError, RecursionError):
        raise ValueError(_NO_LIST) from None
    except ValidationError as invalid:
        fault = invalid.errors(include_input=False, include_url=False)[0]
        path = place_of(fault["loc"])
        raise ValueError(f"API keys: {path}: {fault['msg']}" if path else "not a list of API keys") from None
    for field in ("name", "sha256"):
        if len({getattr(key, field) for key in keys}) < len(keys):
            raise ValueError(f"API keys: two entries have the same {field}")
    return keys


class ApiKeys:
    """The keys of a server. A changed file is read again; if it is invalid, or may have lost its end, the previous keys
    stay valid.

    source: see `read_keys`.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = None if is_content(source) else Path(source)
        self._clock = clock
        self._last_check_s = clock()
        self._version = self._seen = self._file_version()  # of the file that was read or refused; at the last check
        self._seen_s = self._last_check_s  # when the file got that version
        self._content = _content_of(source) if self._file else source
        self._replace(_keys_in(self._content))

    def find(self, key: str) -> ApiKey | None:
        """The entry of a key that a caller sent. Compares hashes in constant time."""
        self._reload()
        sent = hash_of(key)
        found = None
        for entry in self._by_prefix.get(sent[:4], ()):
            if hmac.compare_digest(entry.sha256, sent):
                found = entry
        return found

    def _reload(self) -> None:
        now_s = self._clock()
        if self._file is None or now_s - self._last_check_s < _CHECK_INTERVAL_S:
            return
        self._last_check_s = now_s
        version = self._file_version()
        if version == self._version:
            return
        is_replaced = version and self._version and version.inode != self._version.inode
        if version != self._seen:
            self._seen, self._seen_s = version, now_s
            if version and not is_replaced:
                return  # it may still be written
        try:
            content = _content_of(str(self._file))
            keys = self._checked(content)
        except ValueError as error:
            self._version = version
            logger.error("API keys: the changed file is invalid; the previous keys stay valid: %s", error)
            return
        if not is_replaced and self._lacks_end(content) and now_s < self._seen_s + _SHORTER_S:
            if now_s < self._seen_s + 2 * _CHECK_INTERVAL_S:
                logger.warning(_SHORTER, len(content), len(self._content), _SHORTER_S)
            return
        self._version, self._content = version, content
        self._replace(keys)
        logger.info("API keys: %d read from the changed file", len(keys))

    def _lacks_end(self, content: str) -> bool:
        return self._content.startswith(content) and content != self._content

    def _checked(self, content: str) -> Sequence[ApiKey]:
        """The entries of a changed file. Raises ValueError if the last one has lost a part."""
        keys = _keys_in(content)
        if not content.endswith("\n") and not content.lstrip().startswith("["):
            raise ValueError("the file does not end with a line end; was its end lost?")
        if keys and self._lacks_end(content) and keys[-1] not in _keys_in(self._content):
            raise ValueError(f"API keys: {len(keys) - 1}: the end of the entry was lost")
        return keys

    def _replace(self, keys: Sequence[ApiKey]) -> None:
        by_prefix: dict[str, list[ApiKey]] = {}
        for key in keys:
            by_prefix.setdefault(key.sha256[:4], []).append(key)
        self._by_prefix = by_prefix

    def _file_version(self) -> FileVersion | None:
        """Changes whenever the file is written or replaced; None without a file."""
        try:
            status = self._file.stat() if self._file else None
        except OSError:
            return None
        return FileVersion(status.st_mtime_ns, status.st_ino, status.st_size) if status else None


class FileVersion(NamedTuple):
    """What changes when a file is written (time, size), or replaced by another one (inode)."""

    modified_ns: int
    inode: int
    size: int

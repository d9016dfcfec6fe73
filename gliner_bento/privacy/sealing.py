"""Seals mappings for their tenant: the client keeps them, the server stores nothing.

A sealed mapping is a Fernet token (AES-128-CBC and HMAC-SHA-256) with a key per tenant. It has the time at which it was
made, so that it expires.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gliner_bento.errors import InvalidField, TooLarge

_MAPPINGS, _HASHES = b"gliner-bento mappings\0", b"gliner-bento hashes\0"


class Sealer:
    """Seals and opens the mappings of all tenants.

    keys: secrets of any length; the first seals, all of them open. max_bytes: of a sealed mapping. lifetime_s: of a
    sealed mapping, from the last time it was sealed.
    """

    def __init__(
        self, keys: Sequence[bytes], *, max_bytes: int, lifetime_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys, self._max_bytes, self._lifetime_s, self._clock = keys, max_bytes, lifetime_s, clock

    def seal(self, tenant: str, mapping: Mapping[str, str]) -> str:
        """Seal a mapping. Raises `TooLarge`."""
        content = msgspec.json.encode(dict(mapping))
        if len(content) <= self._max_bytes:  # encryption makes it longer
            sealed = self._fernets(tenant).encrypt_at_time(content, int(self._clock()))
            if len(sealed) <= self._max_bytes:
                return sealed.decode()
        raise TooLarge(f"mapping: it would have more than {self._max_bytes} bytes (max_mapping_bytes)", param="mapping")

    def open(self, tenant: str, sealed: str) -> dict[str, str]:
        """The content of a sealed mapping. Raises `InvalidField` for any that this server has not sealed for this
        tenant, that has expired, or that is too large; the error does not say which."""
        if len(sealed) <= self._max_bytes:
            try:
                token = sealed.encode("ascii")
                content = self._fernets(tenant).decrypt_at_time(token, int(self._lifetime_s), int(self._clock()))
                return msgspec.json.decode(content, type=dict[str, str])
            except (InvalidToken, UnicodeEncodeError, msgspec.MsgspecError):
                pass
        raise InvalidField("mapping: not a mapping of this server for this caller, or expired", param="mapping")

    def hash_key(self, tenant: str, conversation: str | None) -> bytes:
        """The key of hashes of a tenant, or of one of its conversations. Of the first of `keys`."""
        scope = b"" if conversation is None else b"\0" + conversation.encode("utf-8", "surrogatepass")
        return _derived(self._keys[0], _HASHES + tenant.encode() + scope)

    def _fernets(self, tenant: str) -> MultiFernet:
        info = _MAPPINGS + tenant.encode()
        return MultiFernet([Fernet(base64.urlsafe_b64encode(_derived(key, info))) for key in self._keys])


def _derived(key: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(key)

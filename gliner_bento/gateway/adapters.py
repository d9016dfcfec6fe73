"""What the public API does about adapters: check the id, see an archive through to the runner, shape the answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, Mapping
from datetime import datetime, timezone
from typing import Any

from gliner_bento.errors import AdapterNotFound, DeadlineExceeded, InvalidField
from gliner_bento.gateway.limits import Limits
from gliner_bento.gateway.runner import Hop
from gliner_bento.gateway.spool import spooled
from gliner_bento.types import BASE_ADAPTER_ID, AdapterCard, AdapterList, PutAdapterRequest

_HUB = "hub:"


class Adapters:
    """The adapters of a runner. Every call raises `AdapterNotFound` where adapters are not enabled."""

    def __init__(self, hop: Hop, limits: Limits) -> None:
        self._hop = hop
        self._limits = limits
        self.enabled = limits.enable_lora

    async def all(self) -> AdapterList:
        """Every adapter that is served."""
        self._require_enabled()
        return AdapterList(adapters=[_card(info) for info in await self._hop.adapters()])

    async def one(self, adapter_id: str) -> AdapterCard:
        """One adapter."""
        self.check_id(adapter_id)
        return _card(await self._hop.adapter(adapter_id))

    async def put(
        self, adapter_id: str, asked: PutAdapterRequest, archive: AsyncIterable[bytes] | None = None
    ) -> tuple[AdapterCard, bool]:
        """Serve an adapter from now on, or change how it is kept; true if it is new.

        archive: .zip or .tar.gz, as it arrives; an empty one is none.
        """
        self.check_id(adapter_id)
        if asked.revision and not (asked.source or "").startswith(_HUB):
            raise InvalidField(f"revision: only a source that begins with {_HUB} has one", param="revision")
        try:
            info, created = await asyncio.wait_for(
                self._put(adapter_id, asked, archive), self._limits.request_timeout_s
            )
        except asyncio.TimeoutError:
            raise DeadlineExceeded("the deadline passed before the adapter was there; put it again") from None
        return _card(info), created

    async def remove(self, adapter_id: str) -> None:
        """Serve an adapter no longer, once what runs with it has ended."""
        self.check_id(adapter_id)
        await self._hop.delete_adapter(adapter_id, timeout_ms=self._limits.request_timeout_s * 1000)

    async def cache(self) -> dict[str, Any]:
        """The runner's `CacheStatus`, as data."""
        self._require_enabled()
        return await self._hop.adapter_cache()

    def check_id(self, adapter_id: str) -> None:
        """Raise `InvalidField` for an id that no adapter can have."""
        self._require_enabled()
        if adapter_id == BASE_ADAPTER_ID:
            raise InvalidField(f"adapter_id: {BASE_ADAPTER_ID} is the model itself", param="adapter_id")
        if not re.fullmatch(self._limits.adapter_id_pattern, adapter_id):
            raise InvalidField(f"adapter_id: has to match {self._limits.adapter_id_pattern}", param="adapter_id")

    def _require_enabled(self) -> None:
        if not self.enabled:
            raise AdapterNotFound("adapters are not enabled (enable_lora)")

    async def _put(
        self, adapter_id: str, asked: PutAdapterRequest, archive: AsyncIterable[bytes] | None
    ) -> tuple[dict[str, Any], bool]:
        if archive is None:
            return await self._hop.put_adapter(adapter_id, asked)
        async with spooled(archive) as pieces:
            upload_id = await self._hop.upload(pieces)
        return await self._hop.put_adapter(adapter_id, asked, upload_id)


def _card(info: Mapping[str, Any]) -> AdapterCard:
    last_use_s = info["last_use_s"]
    return AdapterCard(
        id=info["adapter_id"],
        bytes=info["size_bytes"],
        last_used=None if last_use_s is None else _moment(last_use_s),
        **{name: info[name] for name in ("source", "rank", "targets", "tier", "pinned", "uses")},
    )


def _moment(seconds: float) -> str:
    """RFC 3339, of seconds since 1970."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

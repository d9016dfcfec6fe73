"""The adapter part of the public API: checks the id and the options, and calls the replica. Knows no HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo, AdapterList, PutAdapterRequest
from gliner_bento.commands import FindAdapter, InstallAdapter, ListAdapters, ReadAdapterCache, RemoveAdapter
from gliner_bento.errors import AdapterNotFound, DeadlineExceeded, InvalidField
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.replicas.base import Replica
from gliner_bento.tasks.base import BASE_ADAPTER_ID

_HUB = "hub:"


class AdapterApi:
    """The adapters of a replica. Every call raises `AdapterNotFound` if adapters are not enabled."""

    def __init__(self, replica: Replica, options: GatewayOptions) -> None:
        self._replica = replica
        self._options = options
        self.enabled = options.enable_lora

    async def list(self) -> AdapterList:
        """All adapters."""
        self._require_enabled()
        return AdapterList(await self._replica.apply(ListAdapters()))

    async def get(self, adapter_id: str) -> AdapterInfo:
        """One adapter."""
        self.check_id(adapter_id)
        return await self._replica.apply(FindAdapter(adapter_id))

    async def put(
        self, adapter_id: str, request: PutAdapterRequest, archive: AsyncIterable[bytes] | None = None
    ) -> tuple[AdapterInfo, bool]:
        """Install an adapter, or pin, unpin or load an installed one. Returns its info, and whether it is new.

        archive: content of a .zip or .tar.gz, as it arrives; empty content counts as no archive.
        """
        self.check_id(adapter_id)
        if request.revision and not (request.source or "").startswith(_HUB):
            raise InvalidField(f"revision: allowed only if the source begins with {_HUB}", param="revision")
        installing = self._replica.apply(InstallAdapter(adapter_id, **request.model_dump()), archive)
        try:
            return await asyncio.wait_for(installing, self._options.request_timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded("the deadline passed before the adapter was installed; repeat the PUT") from None

    async def remove(self, adapter_id: str) -> None:
        """Delete an adapter, after the requests that use it have ended."""
        self.check_id(adapter_id)
        await self._replica.apply(RemoveAdapter(adapter_id, self._options.request_timeout_s))

    async def cache_status(self) -> AdapterCacheStatus:
        """The ids of the adapters in each tier: device, CPU memory and disk."""
        self._require_enabled()
        return await self._replica.apply(ReadAdapterCache())

    def check_id(self, adapter_id: str) -> None:
        """Raise `InvalidField` for an id that no adapter can have."""
        self._require_enabled()
        if adapter_id == BASE_ADAPTER_ID:
            raise InvalidField(f"adapter_id: {BASE_ADAPTER_ID} is the base model", param="adapter_id")
        if not re.fullmatch(self._options.adapter_id_pattern, adapter_id):
            raise InvalidField(f"adapter_id: must match {self._options.adapter_id_pattern}", param="adapter_id")

    def _require_enabled(self) -> None:
        if not self.enabled:
            raise AdapterNotFound.disabled()

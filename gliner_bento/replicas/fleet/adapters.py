"""The adapters of a fleet: one replica changes the store on disk, which all share, and the others load the change.

A replica that is down then reads the store when it starts again, and every replica at the first request of an adapter.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, NotReady
from gliner_bento.replicas.base import Archive, ReplicaAdapters
from gliner_bento.replicas.fleet.health import NONE_READY, Health, Member
from gliner_bento.replicas.merge import merged_cache_statuses

logger = logging.getLogger(__name__)
T = TypeVar("T")


class FleetAdapters:
    """The `ReplicaAdapters` of a fleet. Every method raises `NotReady` while no replica is ready."""

    def __init__(self, members: Mapping[int, Member], health: Health) -> None:
        self._members = members
        self._health = health

    async def list(self) -> Sequence[AdapterInfo]:
        """See `ReplicaAdapters`; as the first ready replica sees them."""
        return await self._read(lambda adapters: adapters.list())

    async def get(self, adapter_id: str) -> AdapterInfo:
        """See `ReplicaAdapters`; as the first ready replica sees it."""
        return await self._read(lambda adapters: adapters.get(adapter_id))

    async def install(
        self, adapter_id: str, *, archive: Archive | None = None, preload: bool = True, **options: Any
    ) -> tuple[AdapterInfo, bool]:
        """See `ReplicaAdapters`. With `preload`, it is in the memory of every ready replica afterwards."""
        writer, *others = await self._ready()
        installed = await self._on(
            writer, writer.replica.adapters.install, adapter_id, archive=archive, preload=preload, **options
        )
        if preload:
            await asyncio.gather(*(self._refresh(member, adapter_id) for member in others))
        return installed

    async def remove(self, adapter_id: str, timeout_s: float) -> None:
        """See `ReplicaAdapters`. Every ready replica waits for its running items; the first to finish deletes it."""
        calls = [self._on(one, one.replica.adapters.remove, adapter_id, timeout_s) for one in await self._ready()]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        errors = [outcome for outcome in outcomes if outcome is not None]
        if len(errors) == len(outcomes):
            raise next((error for error in errors if not isinstance(error, AdapterNotFound)), errors[0])

    async def cache_status(self) -> AdapterCacheStatus:
        """See `ReplicaAdapters`; of all ready replicas."""
        members = await self._ready()
        calls = [self._on(one, one.replica.adapters.cache_status) for one in members]
        return merged_cache_statuses(await asyncio.gather(*calls))

    async def _read(self, read: Callable[[ReplicaAdapters], Awaitable[T]]) -> T:
        """From the first ready replica; from the next one if that is lost."""
        for member in await self._ready():
            try:
                return await self._on(member, read, member.replica.adapters)
            except NotReady:
                continue
        raise NotReady(NONE_READY)

    async def _refresh(self, member: Member, adapter_id: str) -> None:
        """Load what another replica has installed. It is loaded at its first request if this fails."""
        try:
            await self._on(member, member.replica.adapters.install, adapter_id)
        except GLiNERBentoError as error:
            logger.warning("replica %s has not loaded adapter %s: %s", member.name, adapter_id, error)

    async def _on(self, member: Member, call: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
        try:
            return await call(*arguments, **options)
        except NotReady as error:
            self._health.suspect(member, error.message)
            raise

    async def _ready(self) -> builtins.list[Member]:
        self._health.start()
        if not self._health.ready:
            await self._health.probe_all()
        members = [member for member in self._members.values() if member.state == "ready"]
        if not members:
            raise NotReady(NONE_READY)
        return members

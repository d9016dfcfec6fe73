"""The adapters of a fleet: one replica changes the store on disk, which all share; the others load the change.

Every replica reads the store when it starts, and at the first request for an adapter, so a replica that is down misses
nothing. All replicas need the same `disk_cache_dir`; `install` fails if one of them does not find the adapter there.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, NotReady, StorageUnavailable
from gliner_bento.replicas.base import Archive, ReplicaAdapters
from gliner_bento.replicas.fleet.health import NONE_READY, HealthChecker, Member
from gliner_bento.replicas.fleet.merge import merged_cache_statuses

logger = logging.getLogger(__name__)
T = TypeVar("T")


class FleetAdapters:
    """The `ReplicaAdapters` of a fleet. Every method raises `NotReady` while no replica is ready."""

    def __init__(self, members: Mapping[int, Member], health: HealthChecker) -> None:
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
        """See `ReplicaAdapters`. With `preload`, every ready replica loads the adapter into memory.

        Raises `StorageUnavailable` if a replica does not find it in its own `disk_cache_dir`.
        """
        writer, *others = await self._ready()
        installed = await self._on(
            writer, writer.replica.adapters.install, adapter_id, archive=archive, preload=preload, **options
        )
        await asyncio.gather(*(self._load_or_check(member, adapter_id, preload) for member in others))
        return installed

    async def remove(self, adapter_id: str, timeout_s: float) -> None:
        """See `ReplicaAdapters`. Every ready replica waits for its own items; the first to finish deletes the files."""
        outcomes = await self._on_all(lambda adapters: adapters.remove(adapter_id, timeout_s))
        errors = [outcome for outcome in outcomes if outcome is not None]
        if len(errors) == len(outcomes):  # otherwise it is deleted; AdapterNotFound may come from the others
            raise next((error for error in errors if not isinstance(error, AdapterNotFound)), errors[0])

    async def cache_status(self) -> AdapterCacheStatus:
        """See `ReplicaAdapters`; of all ready replicas that answer."""
        outcomes = await self._on_all(lambda adapters: adapters.cache_status())
        statuses = [outcome for outcome in outcomes if isinstance(outcome, AdapterCacheStatus)]
        if not statuses:
            raise next(outcome for outcome in outcomes if isinstance(outcome, BaseException))
        return merged_cache_statuses(statuses)

    async def _read(self, read: Callable[[ReplicaAdapters], Awaitable[T]]) -> T:
        """Call `read` on the first ready replica, or on the next one if the first is lost."""
        for member in await self._ready():
            try:
                return await self._on(member, read, member.replica.adapters)
            except NotReady:
                continue
        raise NotReady(NONE_READY)

    async def _load_or_check(self, member: Member, adapter_id: str, preload: bool) -> None:
        """Make a replica load the installed adapter; without `preload`, check that the replica finds it. A replica that
        does not answer loads the adapter at its first request."""
        adapters = member.replica.adapters
        try:  # without a source, `install` loads an installed adapter
            await self._on(member, adapters.install if preload else adapters.get, adapter_id)
        except AdapterNotFound:
            raise StorageUnavailable(
                "disk_cache_dir: not all replicas see this adapter; all must share the folder"
            ) from None
        except GLiNERBentoError as error:
            logger.warning("replica %s has not loaded adapter %s: %s", member.name, adapter_id, error)

    async def _on_all(self, call: Callable[[ReplicaAdapters], Awaitable[T]]) -> builtins.list[T | BaseException]:
        """The results or errors of all ready replicas."""
        calls = [self._on(member, call, member.replica.adapters) for member in await self._ready()]
        return await asyncio.gather(*calls, return_exceptions=True)

    async def _on(self, member: Member, call: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
        try:
            return await call(*arguments, **options)
        except NotReady:
            await self._health.confirm(member)
            raise

    async def _ready(self) -> builtins.list[Member]:
        self._health.start()
        if not self._health.ready:
            await self._health.probe_all()
        members = [member for member in self._members.values() if member.state == "ready"]
        if not members:
            raise NotReady(NONE_READY)
        return members

"""The adapters of a fleet: one replica changes the store on disk, which all share; the others load the change.

Every replica reads the store when it starts, and at the first request for an adapter, so a replica that is down misses
nothing. All replicas need the same `disk_cache_dir`; `InstallAdapter` fails if one of them does not find the adapter
there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.commands import RULES, AdapterCommand, ChangeAdapter, FindAdapter, InstallAdapter
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, NotReady, StorageUnavailable
from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.fleet.health import NONE_READY, HealthChecker, Member
from gliner_bento.replicas.fleet.merge import merged_cache_statuses

logger = logging.getLogger(__name__)
T = TypeVar("T")


class FleetAdapters:
    """Carries out the commands about a fleet's adapters, on the replicas that `RULES` names. Raises `NotReady` while no
    replica is ready."""

    def __init__(self, members: Mapping[int, Member], health: HealthChecker) -> None:
        self._members = members
        self._health = health

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        """See `Replica`. Raises `StorageUnavailable` if a replica does not find an adapter that another one has
        installed or changed."""
        members = await self._ready()
        reach = RULES[type(command)].reach
        if reach == "first":
            return await self._on_first(members, command)
        if reach == "all":
            return await self._on_all(members, command)
        writer, *others = members
        result = await self._on(writer, command, archive)
        await asyncio.gather(*(self._follow(member, command) for member in others))
        return result

    async def _on_first(self, members: Sequence[Member], command: AdapterCommand[T]) -> T:
        """The result of the first replica, or of the next one if the first is lost."""
        for member in members:
            with suppress(NotReady):
                return await self._on(member, command)
        raise NotReady(NONE_READY)

    async def _on_all(self, members: Sequence[Member], command: AdapterCommand[T]) -> T:
        """The merged results of the replicas where it succeeds. One is enough to remove an adapter: the first to finish
        deletes the files, and the others may then find none. Raises an error if it succeeds nowhere."""
        calls = (self._on(member, command) for member in members)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if len(errors) == len(outcomes):
            raise next((error for error in errors if not isinstance(error, AdapterNotFound)), errors[0])
        return _merged([outcome for outcome in outcomes if not isinstance(outcome, BaseException)])

    async def _follow(self, member: Member, command: AdapterCommand[Any]) -> None:
        """Make a replica load an adapter that another one has installed or changed; if it is not to be preloaded, check
        that the replica finds it. A replica that does not answer loads the adapter at its first request."""
        assert isinstance(command, InstallAdapter | ChangeAdapter)
        adapter_id = command.adapter_id
        try:
            await self._on(member, ChangeAdapter(adapter_id) if command.preload else FindAdapter(adapter_id))
        except AdapterNotFound:
            raise StorageUnavailable(
                "disk_cache_dir: not all replicas see this adapter; all must share the folder"
            ) from None
        except GLiNERBentoError as error:
            logger.warning("replica %s has not loaded adapter %s: %s", member.name, adapter_id, error)

    async def _on(self, member: Member, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        try:
            return await member.replica.apply(command, archive)
        except NotReady:
            await self._health.confirm(member)
            raise

    async def _ready(self) -> list[Member]:
        self._health.start()
        if not self._health.ready:
            await self._health.probe_all()
        members = [member for member in self._members.values() if member.state == "ready"]
        if not members:
            raise NotReady(NONE_READY)
        return members


def _merged(results: Sequence[T]) -> T:
    if isinstance(results[0], AdapterCacheStatus):
        return cast(T, merged_cache_statuses(cast(Sequence[AdapterCacheStatus], results)))
    return results[0]

"""The adapters of a deployment: one replica changes the store on disk, which all share, and the others load the change.

A replica that starts later reads the store, so all nodes must have the same `disk_cache_dir`: where a replica does not
see what another one has installed, the installation fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, NotReady, StorageUnavailable
from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.merge import merged_cache_statuses
from gliner_bento.replicas.messages import Reply, decoder

_MARGIN_S = 5.0
_LOADING_S = 60.0

_Installed: Any = tuple[AdapterInfo, bool]
_installed = decoder(Reply[_Installed])


class RayAdapters:
    """The `ReplicaAdapters` of a `RayReplica`.

    call_all: `RayReplica.call_all`. install: `HostedReplica.install_adapter` on any replica.
    """

    def __init__(
        self,
        call_all: Callable[..., Awaitable[dict[str, Any]]],
        install: Callable[[dict[str, Any], bytes | None], Awaitable[bytes]],
    ) -> None:
        self._call_all = call_all
        self._install = install

    async def list(self) -> Sequence[AdapterInfo]:
        """See `ReplicaAdapters`; as the first replica that answers sees them."""
        return cast(Sequence[AdapterInfo], await self._read(list[AdapterInfo], "adapters", {}))

    async def get(self, adapter_id: str) -> AdapterInfo:
        """See `ReplicaAdapters`; as the first replica that answers sees it."""
        return cast(AdapterInfo, await self._read(AdapterInfo, "adapter", {"adapter_id": adapter_id}))

    async def install(
        self, adapter_id: str, *, archive: Archive | None = None, preload: bool = True, **options: Any
    ) -> tuple[AdapterInfo, bool]:
        """See `ReplicaAdapters`. With `preload`, it is in the memory of every replica afterwards.

        The archive is in this process's memory until it is installed. Raises `StorageUnavailable` if a replica does not
        see it then.
        """
        content = None if archive is None else b"".join([piece async for piece in archive])
        arguments = {"adapter_id": adapter_id, "preload": preload, **options}
        installed = _installed.decode(await self._install(arguments, content)).unwrap()
        kind, method = (_Installed, "refresh_adapter") if preload else (AdapterInfo, "adapter")
        outcomes = await self._call_all(kind, method, {"adapter_id": adapter_id}, _LOADING_S)
        if any(isinstance(outcome, AdapterNotFound) for outcome in outcomes.values()):
            raise StorageUnavailable(
                "disk_cache_dir: not all replicas see this adapter; all nodes must share the folder"
            )
        return cast(tuple[AdapterInfo, bool], installed)

    async def remove(self, adapter_id: str, timeout_s: float) -> None:
        """See `ReplicaAdapters`. Every replica waits for its running items; the first to finish deletes it."""
        arguments = {"adapter_id": adapter_id, "timeout_s": timeout_s}
        outcomes = await self._call_all(type(None), "remove_adapter", arguments, timeout_s + _MARGIN_S)
        errors = [outcome for outcome in outcomes.values() if outcome is not None]
        if len(errors) == len(outcomes):
            raise next((error for error in errors if not isinstance(error, AdapterNotFound)), errors[0])

    async def cache_status(self) -> AdapterCacheStatus:
        """See `ReplicaAdapters`; of all replicas."""
        outcomes = await self._call_all(AdapterCacheStatus, "adapter_cache", {})
        return merged_cache_statuses(_results(outcomes))

    async def _read(self, kind: Any, method: str, arguments: dict[str, Any]) -> Any:
        return _results(await self._call_all(kind, method, arguments))[0]


def _results(outcomes: dict[str, Any]) -> list[Any]:
    """What is no error; raises an error if all are."""
    results = [outcome for outcome in outcomes.values() if not isinstance(outcome, GLiNERBentoError)]
    if not results:
        errors = list(outcomes.values())
        raise next((error for error in errors if not isinstance(error, NotReady)), errors[0])
    return results

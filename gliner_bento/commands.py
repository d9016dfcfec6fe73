"""Commands about adapters and models, as values: the gateway makes them, and each is passed on as it is to the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.model_types import AddModelRequest, ModelAction, ModelRow

T = TypeVar("T")


class Command(Generic[T]):
    """T: type of the result."""

    __slots__ = ()


class AdapterCommand(Command[T]):
    """Carried out by `Replica.apply`. Raises `AdapterNotFound` if adapters are not enabled."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ListAdapters(AdapterCommand[Sequence[AdapterInfo]]):
    """All adapters, sorted by id."""


@dataclass(frozen=True, slots=True)
class FindAdapter(AdapterCommand[AdapterInfo]):
    """One adapter. Raises `AdapterNotFound`."""

    adapter_id: str


@dataclass(frozen=True, slots=True)
class ReadAdapterCache(AdapterCommand[AdapterCacheStatus]):
    """Which adapters are in which tier."""


@dataclass(frozen=True, slots=True)
class InstallAdapter(AdapterCommand[tuple[AdapterInfo, bool]]):
    """Install an adapter from the archive that comes with the command, or from `source` (of `revision`). The result is
    its info, and whether it is new. Idempotent. An empty archive counts as none; without an archive and a source, the
    same as `ChangeAdapter`.

    source, revision: see `PutAdapterRequest`. pinned: None: as it is; a new adapter is not pinned. preload: wait until
    the adapter is in memory; at most a minute, because all places there may be in use. replace: install also if the id
    belongs to an adapter with other content; running items keep the old content.
    Raises `AdapterInvalid`, `Conflict`, `StorageFull`, `TooLarge` and what the archive raises.
    """

    adapter_id: str
    source: str | None = None
    revision: str | None = None
    pinned: bool | None = None
    preload: bool = True
    replace: bool = False


@dataclass(frozen=True, slots=True)
class ChangeAdapter(AdapterCommand[AdapterInfo]):
    """Pin or unpin an installed adapter, load it into memory, or both. pinned: None: as it is. preload: as for
    `InstallAdapter`. Raises `AdapterNotFound`."""

    adapter_id: str
    pinned: bool | None = None
    preload: bool = True


@dataclass(frozen=True, slots=True)
class RemoveAdapter(AdapterCommand[None]):
    """Refuse new items of the adapter, wait for the running ones, delete it.

    Raises `AdapterNotFound`, `Conflict`, and `DeadlineExceeded` after `timeout_s`; the adapter is then kept.
    """

    adapter_id: str
    timeout_s: float


class ModelCommand(Command[T]):
    """Carried out by `Models.apply`. Raises `DeadlineExceeded` after `timeout_s`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AddModel(ModelCommand[ModelRow]):
    """Add a model, and load it if `request.load`. A model that cannot be loaded is not added. If an archive comes with
    the command, it contains the checkpoint, and `request.source` is `UPLOADED`.

    Raises `Conflict` for a name that exists, `InvalidField`, `TooLarge`, `StorageFull`, `DoesNotFit`, `ModelFailed`,
    and `DeadlineExceeded` after `timeout_s`; loading then continues.
    """

    request: AddModelRequest
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ChangeModel(ModelCommand[ModelRow]):
    """Load, unload, pin or unpin a model. Unloading waits for the model's running items, and for those that gateways
    send before they learn of the change.

    Raises `ModelNotFound`, `Conflict` while another change of the model runs, and what `AddModel` raises.
    """

    name: str
    action: ModelAction
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RemoveModel(ModelCommand[None]):
    """Refuse new items of the model, wait for the running ones, forget it. Raises what `ChangeModel` raises."""

    name: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Rule:
    """How a command reaches replicas.

    result: type of the result. reach: which replicas of a fleet carry it out: the `first` one that is ready, or `all`;
    `writer`: one changes the files that all share, and the others then load the change. reads: it changes nothing, so
    it may be repeated, and is answered soon. late: message of the `DeadlineExceeded` if a replica in another process
    does not answer by the command's `timeout_s`; empty: the replica then counts as unreachable.
    """

    result: Any
    reach: Literal["first", "all", "writer"]
    reads: bool = False
    late: str = ""


RULES: Mapping[type[Command[Any]], Rule] = {
    ListAdapters: Rule(list[AdapterInfo], "first", reads=True),
    FindAdapter: Rule(AdapterInfo, "first", reads=True),
    ReadAdapterCache: Rule(AdapterCacheStatus, "all", reads=True),
    InstallAdapter: Rule(tuple[AdapterInfo, bool], "writer"),
    ChangeAdapter: Rule(AdapterInfo, "writer"),
    RemoveAdapter: Rule(type(None), "all", late="the deadline passed before the adapter was removed"),
    AddModel: Rule(ModelRow, "all"),
    ChangeModel: Rule(ModelRow, "all"),
    RemoveModel: Rule(type(None), "all"),
}

BY_NAME: Mapping[str, Any] = {kind.__name__: kind for kind in RULES}
"""The commands by their names in messages."""

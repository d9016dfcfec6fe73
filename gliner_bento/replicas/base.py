"""The contract between the gateway and a replica: one model with its scheduler, in this process or elsewhere.

Items go in, results or errors come out, one call per client request. Imports no model library and no transport.
A replica raises only errors of `errors.py`; a transport translates its own errors into these.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from gliner_bento.commands import AdapterCommand, ModelCommand
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.frozen import frozen
from gliner_bento.model_types import ModelRow
from gliner_bento.status_types import ModelInfo, ReplicaHealth, Throughput
from gliner_bento.tasks.base import Item, Result

T = TypeVar("T")

Outcome = Result | GLiNERBentoError

StreamStep = Sequence[Any] | Result
"""Parts of a result that have become final, in order; at the end of the stream, a `Result` with the remaining parts."""

Archive = AsyncIterable[bytes]
"""A .zip or .tar.gz of an adapter or a model, as it arrives."""


@frozen()
class Call:
    """One client request, as a replica sees it.

    request_id: the tenant and the id of its request in one string, as `abort` takes it.
    deadline_s: on this process's `time.monotonic()`; every item ends by then.
    idle_timeout_s: a stream also ends if no pass finishes for this time.
    priority: lower is scheduled earlier, as in vLLM, among the tenant's requests.
    tenant: who sent the request; tenants share the replica fairly. weight: relative to the weights of other tenants.
    crosses_tenants: `priority` also orders the request among those of other tenants.
    trace: the W3C `traceparent` of the gateway's span, if the request is traced.
    """

    request_id: str
    deadline_s: float
    priority: int = 0
    tenant: str = ""
    weight: float = 1.0
    crosses_tenants: bool = False
    trace: str | None = None
    idle_timeout_s: float = math.inf

    @property
    def share(self) -> TenantShare:
        """The tenant's name, weight and right to cross tenants."""
        return TenantShare(self.tenant, self.weight, self.crosses_tenants)

    def wait_s(self, now_s: float) -> float:
        """Maximum time to wait from now on for the answer, or for the next part of a stream."""
        return min(max(0.0, self.deadline_s - now_s), self.idle_timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """A replica's model, readiness and load. `waiting_tokens` and `running_tokens` are costs, see `QueueStatus`.

    ready: it admits items and all of its threads are alive.
    waiting_items, running_items: count each pass of a chunked request. unfinished_items: counts such a request once.
    resident_adapters: ids of the adapters in memory.
    lanes: number of lanes; those that are neither idle nor busy have died.
    replicas: the members of a fleet; empty for a single replica.
    """

    model: ModelInfo
    ready: bool
    waiting_items: int
    running_items: int
    waiting_tokens: int
    running_tokens: int
    resident_adapters: Sequence[str] = ()
    unfinished_items: int = 0
    lanes: int = 0
    idle_lanes: int = 0
    busy_lanes: int = 0
    throughput: Throughput = field(default_factory=Throughput)
    replicas: Sequence[ReplicaHealth] = ()


class Replica(Protocol):
    """One model with its scheduler. Its methods are called from one event loop, any number concurrently."""

    @property
    def tokens_run(self) -> int:
        """Tokens that the replica has run since its start, as of the last answer to `extract` or part of a `stream`."""

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """One outcome per item, in order. Cancelling the call aborts its items.

        Raises `NotReady` or `DeadlineExceeded` if the replica as a whole does not answer.
        """

    def stream(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        """The parts of the item's result as they become final.

        An empty sequence reports progress. Raises the item's error. Closing the generator aborts the item. Processing
        pauses while the parts are not read (backpressure).
        """

    async def abort(self, request_id: str) -> bool:
        """Abort every item of a request; False if there is none."""

    async def status(self) -> ReplicaStatus:
        """The replica's state now; raises `NotReady` if it cannot be reached."""

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        """Carry out a command about adapters, and return its result. archive: belongs to `InstallAdapter`."""


ROWS_AGE_S = 1.0
"""Maximum age of the copy of `Models.rows` in a gateway that gets requests. The gateway refuses requests for models
that its copy shows as unloading."""


class Models(Protocol):
    """The models that can be served, in one process or several. Loads and unloads models while other models serve."""

    async def rows(self) -> Sequence[ModelRow]:
        """All models now, the default first; raises `NotReady` if they cannot be reached."""

    async def apply(self, command: ModelCommand[T], archive: Archive | None = None) -> T:
        """Carry out a command, and return its result. archive: belongs to `AddModel`."""

    def replica(self, name: str) -> Replica:
        """The replica of a model in `rows`. A call of the replica loads the model again if it was evicted."""

    def forget(self, name: str) -> None:
        """End the replica that `replica` has made of a model that is no longer in `rows`, if it has anything to end.
        Its name may get another model."""

"""The types of `/v1/status` and `/v1/replicas`: what a server does now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The load of the replica. Passes of long texts count as items; tokens are costs, as the scheduler counts them."""

    waiting_items: int
    waiting_tokens: int
    running_items: int
    running_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """The threads that run batches. One that is neither idle nor busy has died."""

    total: int
    busy: int
    idle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTiers:
    """How many adapters each tier holds."""

    device: int
    cpu: int
    disk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Averages over the last minute, or since the start."""

    batches_per_s: float = 0.0
    items_per_s: Annotated[float, Field(description="Items and passes of long texts.")] = 0.0
    tokens_per_s: Annotated[float, Field(description="Without padding.")] = 0.0


@dataclass(frozen=True, slots=True)
class RecentError:
    """An answer with a status of 500 or higher."""

    code: str
    status: int
    request_id: str
    time: Annotated[str, Field(description="RFC 3339, UTC.", examples=["2026-01-31T12:00:00.000Z"])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The answer of /v1/status. `queue`, `lanes` and `throughput` are null if the replica cannot be reached."""

    version: str
    model: Annotated[str | None, Field(description="Null if the replica could not be reached yet.")]
    ready: bool
    uptime_s: Annotated[float, Field(description="Of the process that answers.")]
    queue: QueueStatus | None
    lanes: LaneStatus | None
    throughput: Throughput | None
    adapters: Annotated[AdapterTiers | None, Field(description="Null if adapters are not enabled.")]
    recent_errors: Annotated[
        Sequence[RecentError], Field(description="Of the process that answers, latest first; at most 20.")
    ]


HealthState = Literal["starting", "ready", "not_ready", "suspect", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHealth:
    """A replica, as the gateway sees it."""

    name: str
    state: Annotated[
        HealthState,
        Field(
            description="starting: it has not answered yet. ready: it gets requests. not_ready: it answers, and admits "
            "none. suspect: it does not answer. refused: it serves another model than the others."
        ),
    ]
    reason: Annotated[str | None, Field(description="Why it is not ready.")] = None
    requests: Annotated[int, Field(description="Calls that this process of the gateway has sent to it.")] = 0
    outstanding_tokens: Annotated[
        int, Field(description="Estimated cost of those that it has not answered, in tokens.")
    ] = 0
    waiting_items: int = 0
    running_items: int = 0
    resident_adapters: Annotated[Sequence[str], Field(description="Ids of the adapters in its memory.")] = ()


@dataclass(frozen=True, slots=True)
class ReplicaList:
    """The answer of /v1/replicas."""

    replicas: Sequence[ReplicaHealth]

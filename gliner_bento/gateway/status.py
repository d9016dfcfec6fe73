"""The answer of `/v1/status`: what the replica reports, and the errors that this process has answered."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timezone

from gliner_bento import __version__
from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.replicas.base import ReplicaStatus
from gliner_bento.status_types import AdapterTiers, LaneStatus, QueueStatus, RecentError, ServerStatus
from gliner_bento.telemetry.metrics import ReplicaState

_MAX_ERRORS = 20


class RecentErrors:
    """The latest answers with a status of 500 or higher."""

    def __init__(self) -> None:
        self._errors: deque[RecentError] = deque(maxlen=_MAX_ERRORS)

    def add(self, status: int, code: str, answered_id: str) -> None:
        """Add an answer. answered_id: id of its request."""
        moment = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._errors.appendleft(RecentError(code, status, answered_id, moment))

    def latest_first(self) -> list[RecentError]:
        """The latest `_MAX_ERRORS` errors."""
        return list(self._errors)


def server_status(state: ReplicaState, *, uptime_s: float, errors: RecentErrors) -> ServerStatus:
    """The status of the server and of one of its models."""
    status = state.status
    return ServerStatus(
        version=__version__,
        model=state.model,
        ready=status is not None and status.ready,
        uptime_s=round(uptime_s, 1),
        queue=_queue(status) if status else None,
        lanes=LaneStatus(total=status.lanes, busy=status.busy_lanes, idle=status.idle_lanes) if status else None,
        throughput=status.throughput if status else None,
        adapters=_tiers(state.adapters) if state.adapters else None,
        recent_errors=errors.latest_first(),
    )


def _queue(status: ReplicaStatus) -> QueueStatus:
    return QueueStatus(
        waiting_items=status.waiting_items,
        waiting_tokens=status.waiting_tokens,
        running_items=status.running_items,
        running_tokens=status.running_tokens,
    )


def _tiers(adapters: AdapterCacheStatus) -> AdapterTiers:
    return AdapterTiers(
        device=sum(adapter_id is not None for adapter_id in adapters.device_slots),
        cpu=len(adapters.in_memory),
        disk=len(adapters.on_disk),
    )

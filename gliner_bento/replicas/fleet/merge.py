"""Merges the states of several replicas into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.replicas.base import ReplicaStatus
from gliner_bento.status_types import ModelInfo, Throughput

_WORK = ("waiting_items", "running_items", "waiting_tokens", "running_tokens", "unfinished_items")
_LANES = ("lanes", "idle_lanes", "busy_lanes")


def merged_statuses(model: ModelInfo, statuses: Sequence[ReplicaStatus]) -> ReplicaStatus:
    """The status of a fleet: ready if a replica is ready; loads are added up. model: the model of all replicas."""
    rates = [rate.name for rate in fields(Throughput)]
    return ReplicaStatus(
        model=model,
        ready=any(status.ready for status in statuses),
        **{name: sum(getattr(status, name) for status in statuses) for name in (*_WORK, *_LANES)},
        throughput=Throughput(**{name: sum(getattr(status.throughput, name) for status in statuses) for name in rates}),
        resident_adapters=list(dict.fromkeys(adapter for status in statuses for adapter in status.resident_adapters)),
    )


def merged_cache_statuses(statuses: Sequence[AdapterCacheStatus]) -> AdapterCacheStatus:
    """The adapters of all replicas (at least one), which share a folder on disk."""
    return replace(
        statuses[0],
        in_memory=list(dict.fromkeys(adapter for status in statuses for adapter in status.in_memory)),
        device_slots=[slot for status in statuses for slot in status.device_slots],
    )

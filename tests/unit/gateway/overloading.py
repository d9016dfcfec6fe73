"""Brings a gateway to the point at which it refuses requests."""

from __future__ import annotations

import asyncio

import httpx
from memory_replica import MemoryReplica

REQUEST = {"text": "Ada met Charles " * 6, "labels": ["name"]}
MANY = 400  # more than a burst of the usual options


async def overloaded(
    client: httpx.AsyncClient, replica: MemoryReplica, many: int = MANY, **headers: str
) -> list[asyncio.Future[httpx.Response]]:
    """As many requests as it takes; they run until `replica.step` is true."""
    replica.step = lambda: False
    asked = [asyncio.ensure_future(client.post("/v1/extract", json=REQUEST, headers=headers)) for _ in range(many)]
    while len(replica.calls) + sum(one.done() for one in asked) < many:
        await asyncio.sleep(0)
    assert len(replica.calls) < many
    return [one for one in asked if not one.done()]

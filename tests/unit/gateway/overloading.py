"""Brings a gateway to the point at which it refuses requests."""

from __future__ import annotations

import asyncio

import httpx
from doubles.memory_replica import MemoryReplica

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.gateway import Gateway

REQUEST = {"text": "Ada met Charles " * 6, "labels": ["name"]}
MANY = 150
TOKENS = 1500.0
"""What the replica runs by a deadline: too little to answer `MANY` requests."""


def measured(gateway: Gateway, tokens_per_s: float) -> None:
    """As if the replica had been busy for a while."""
    throughput = gateway.models.default.policy._throughput
    throughput._tokens, throughput._elapsed_s = 10 * tokens_per_s, 10.0
    throughput.measured_s = 1000.0


async def overloaded(
    app: GatewayApp, client: httpx.AsyncClient, replica: MemoryReplica, **headers: str
) -> list[asyncio.Future[httpx.Response]]:
    """As many requests as it takes; they run until `replica.step` is true."""
    many = MANY
    measured(app.gateway, TOKENS / app.options.request_timeout_s)
    replica.step = lambda: False
    asked = [asyncio.ensure_future(client.post("/v1/extract", json=REQUEST, headers=headers)) for _ in range(many)]
    while len(replica.calls) + sum(one.done() for one in asked) < many:
        await asyncio.sleep(0)
    assert len(replica.calls) < many
    return [one for one in asked if not one.done()]

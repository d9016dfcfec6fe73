"""What an overloaded server answers, and what it still does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

REQUEST = {"text": "Ada met Charles " * 6, "labels": ["name"]}
MANY = 400  # more than a burst


async def overloaded(client: httpx.AsyncClient, replica) -> list[asyncio.Future[httpx.Response]]:
    """As many requests as it takes."""
    replica.step = lambda: False
    asked = [asyncio.ensure_future(client.post("/v1/extract", json=REQUEST)) for _ in range(MANY)]
    while len(replica.calls) + sum(one.done() for one in asked) < MANY:
        await asyncio.sleep(0)
    assert len(replica.calls) < MANY
    return [one for one in asked if not one.done()]


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/batch", "/v1/extract/stream", "/gliner"])
def test_an_overloaded_server_refuses_a_request_that_it_has_not_read(client, replica, path: str):
    async def scene():
        asked = await overloaded(client, replica)

        async def unread():
            raise AssertionError("the body is read")
            yield b""

        refusal = await client.post(path, content=unread(), headers={"Content-Type": "application/json"})
        assert refusal.status_code == 429
        assert refusal.json()["error"]["code"] == "queue_full"
        assert int(refusal.headers["Retry-After"]) >= 1
        assert len(replica.calls) == len(asked)
        replica.step = lambda: True
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert (await client.post("/v1/extract", json=REQUEST)).status_code == 200

    asyncio.run(scene())


def test_an_overloaded_server_still_answers_everything_else(client, replica):
    async def scene():
        asked = await overloaded(client, replica)
        for method, path in [("GET", "/readyz"), ("GET", "/v1/model"), ("GET", "/v1/adapters"), ("GET", "/docs.json")]:
            assert (await client.request(method, path)).status_code == 200
        assert (await client.post("/v1/requests/none/abort")).json()["aborted"] is False
        replica.step = lambda: True
        await asyncio.gather(*asked)

    asyncio.run(scene())

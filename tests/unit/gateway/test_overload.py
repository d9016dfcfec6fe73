"""What an overloaded server answers, and what it still does."""

from __future__ import annotations

import asyncio

import pytest
from overloading import REQUEST, overloaded


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/batch", "/v1/extract/stream", "/gliner"])
def test_an_overloaded_server_refuses_a_request_that_it_has_not_read(app, client, replica, path: str):
    async def scene():
        asked = await overloaded(app, client, replica)

        async def unread():
            raise AssertionError("the body is read")
            yield b""

        refusal = await client.post(path, content=unread(), headers={"Content-Type": "application/json"})
        assert refusal.status_code == 429
        assert ("queue_full" in refusal.text) == (path != "/gliner"), "gliner.serve's errors have no code"
        assert int(refusal.headers["Retry-After"]) >= 1
        assert len(replica.calls) == len(asked)
        replica.step = lambda: True
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert (await client.post("/v1/extract", json=REQUEST)).status_code == 200

    asyncio.run(scene())


def test_an_overloaded_server_still_answers_everything_else(app, client, replica):
    async def scene():
        asked = await overloaded(app, client, replica)
        for method, path in [("GET", "/readyz"), ("GET", "/v1/model"), ("GET", "/v1/adapters"), ("GET", "/docs.json")]:
            assert (await client.request(method, path)).status_code == 200
        assert (await client.post("/v1/requests/none/abort")).json()["aborted"] is False
        replica.step = lambda: True
        await asyncio.gather(*asked)

    asyncio.run(scene())

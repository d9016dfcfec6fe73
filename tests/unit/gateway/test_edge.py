"""What a request's headers decide is found once, and trusted only for the request that it was found for."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import httpx
import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from overloaded_server import serving

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.storage.api_keys import ApiKeys, hash_of

BODY = json.dumps({"text": "Ada met Charles.", "labels": ["name"]}).encode()
KEYS = json.dumps([{"name": name, "sha256": hash_of(f"key-{name}")} for name in ("a", "b")])


@pytest.fixture
def searched(monkeypatch):
    """The keys that were looked up, in order."""
    keys, find = [], ApiKeys.find

    def find_and_note(self, key):
        keys.append(key)
        return find(self, key)

    monkeypatch.setattr(ApiKeys, "find", find_and_note)
    return keys


@pytest.mark.parametrize("direct", [True, False])
def test_a_key_is_looked_up_once_in_a_request(searched, direct):
    async def scene():
        async with serving(load=False, direct=direct, api_keys=KEYS) as served:
            client = await served.connect()
            paths = ["/v1/extract", "/v1/extract/", "/models/memory/v1/extract", "/v1/extract/batch", "/v1/adapters/x"]
            for number, path in enumerate(paths, start=1):
                head = f"POST {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: key-a\r\nContent-Length: {len(BODY)}\r\n\r\n"
                await client.answer(head.encode() + BODY)
                assert len(searched) == number, path

    asyncio.run(scene())


def gateway(**settings) -> GatewayApp:
    app = GatewayApp(dataclasses.replace(OPTIONS, **settings))
    app.bind(MemoryReplica())
    return app


def behind(arriving: GatewayApp, app: GatewayApp, **changed) -> httpx.AsyncClient:
    """A client of `app`. Its requests arrive at another gateway's protocol, or are `changed` afterwards."""

    async def arrive(scope, receive, send):
        arriving.early.arrive(scope)
        await app({**scope, **changed}, receive, send)

    transport = httpx.ASGITransport(arrive, client=("10.0.0.1", 4000))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def status_of(client: httpx.AsyncClient, path: str = "/v1/extract", key: str | None = "key-a") -> int:
    headers = {"X-API-Key": key} if key else {}
    return asyncio.run(client.post(path, content=BODY, headers=headers)).status_code


def test_what_another_gateway_has_found_is_not_trusted(searched):
    app, other = gateway(api_keys=KEYS), gateway(api_keys=KEYS)
    assert status_of(behind(gateway(), app), key=None) == 401
    assert status_of(behind(other, app), key="wrong") == 401
    assert status_of(behind(other, app)) == 200
    searched.clear()
    assert status_of(behind(app, app)) == 200
    assert searched == ["key-a"]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"headers": [(b"x-api-key", b"wrong")]}, 401),
        ({"path": "/v1/models"}, 403),
        ({"path": "/nowhere"}, 404),
        ({"method": "PATCH"}, 405),
        ({"root_path": "/v1"}, 404),
        ({"query_string": b"model=none"}, 404),
    ],
    ids=str,
)
def test_a_request_that_was_changed_on_its_way_is_decided_again(changed, status):
    app = gateway(api_keys=KEYS)
    assert status_of(behind(app, app, **changed)) == status


@pytest.mark.parametrize("changed", [{"client": ("10.0.0.2", 1)}, {"headers": [(b"x-tenant-id", b"10.0.0.2")]}])
def test_a_tenant_that_was_changed_on_its_way_is_the_requests(changed):
    app = gateway(tenant_header="X-Tenant-ID")
    assert status_of(behind(app, app, **changed)) == 200
    replica = app.gateway.models.default.replica
    assert isinstance(replica, MemoryReplica)
    assert replica.calls[-1][1].tenant == "10.0.0.2"


def test_an_address_that_was_changed_on_its_way_is_the_requests():
    app = gateway()
    local = {"client": ("127.0.0.1", 1)}
    assert status_of(behind(app, app, **local), "/v1/models/memory/unload") == 501
    assert status_of(behind(app, app), "/v1/models/memory/unload") == 403
    assert status_of(behind(app, app, server=("10.0.0.5", 3000))) == 403
    assert status_of(behind(app, app, **local, http_version="1.0"), "/v1/models/memory/unload") == 403

"""Tenants: who they are, and that a request id belongs to one of them."""

from __future__ import annotations

import asyncio
import dataclasses
import sys

import httpx
import pytest
from gateway_options import OPTIONS

from gliner_bento.errors import Forbidden
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.policy.tenants import at_address
from gliner_bento.gateway.policy.web_pages import WebPages

BODY = {"text": "Ada met Charles.", "labels": ["person"], "request_id": "mine"}


@pytest.fixture
def app(replica):
    app = GatewayApp(dataclasses.replace(OPTIONS, tenant_header="X-Tenant-ID"))
    app.bind(replica)
    return app


def caller(app, address="10.0.0.1", **headers):
    """A client at an address."""
    transport = httpx.ASGITransport(app, client=(address, 4000))
    return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)


def tenant_of(replica, app, address="10.0.0.1", **headers):
    """The tenant as which the replica sees a request."""
    answer = asyncio.run(caller(app, address, **headers).post("/v1/extract", json=BODY))
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "mine"
    tenant, _, sent = replica.calls[-1][1].request_id.partition("/")
    assert sent == "mine"
    return tenant


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("10.0.0.1", {}), ("10.0.0.2", {})),
        (("10.0.0.1", {"X-Tenant-ID": "a"}), ("10.0.0.1", {"X-Tenant-ID": "b"})),
        (("10.0.0.1", {"X-Tenant-ID": "a"}), ("10.0.0.1", {})),
    ],
)
def test_an_abort_reaches_only_the_tenants_own_requests(app, replica, first, second):
    async def scene():
        replica.step = lambda: False
        callers = [caller(app, address, **headers) for address, headers in (first, second)]
        running = [asyncio.ensure_future(client.post("/v1/extract", json=BODY)) for client in callers]
        while len(replica.admitted) < 2:
            await asyncio.sleep(0)
        aborted = await callers[0].post("/v1/requests/mine/abort")
        ended, _ = await asyncio.wait(running, return_when="FIRST_COMPLETED")
        replica.step = lambda: True
        answers = await asyncio.gather(*running)
        return aborted.json(), ended == {running[0]}, [answer.status_code for answer in answers]

    assert asyncio.run(scene()) == ({"request_id": "mine", "aborted": True}, True, [499, 200])


def test_a_tenant_is_the_header_or_the_address(app, replica):
    assert tenant_of(replica, app, **{"X-Tenant-ID": "team-a"}) == "team-a"
    assert tenant_of(replica, app) == "10.0.0.1"
    assert tenant_of(replica, app, address="fe80::1%eth0/x") == "fe80::1_eth0_x"


@pytest.mark.parametrize(
    "use",
    [at_address, lambda host: WebPages(OPTIONS).check({"host": host}, allow_public_hosts=True)],
    ids=["X-Forwarded-For", "Host"],
)
def test_nothing_long_that_a_client_sends_is_kept(use):
    value = "a." * 4000
    before = sys.getrefcount(value)
    use(value)
    assert sys.getrefcount(value) == before


def test_a_long_host_is_no_own_one():
    with pytest.raises(Forbidden):
        WebPages(OPTIONS).check({"host": "a." * 4000 + "local"}, allow_public_hosts=False)


def test_the_header_counts_only_if_the_operator_names_it(replica):
    app = GatewayApp(OPTIONS)
    app.bind(replica)
    assert tenant_of(replica, app, **{"X-Tenant-ID": "team-a"}) == "10.0.0.1"


@pytest.mark.parametrize("name", ["a/b", "a b", "x" * 129])
def test_an_invalid_tenant_is_refused(app, name):
    answer = asyncio.run(caller(app, **{"X-Tenant-ID": name}).post("/v1/extract", json=BODY))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed_request")
    assert "X-Tenant-ID" in answer.json()["error"]["message"]


def test_outside_http_there_is_one_tenant():
    assert Context().own("r") == "local/r"

"""Whose request it is behind a proxy: the same for early refusals, for limits and for the app."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from overloaded_server import serving
from overloading import REQUEST, measured
from replica_calls import until

from gliner_bento.gateway.policy.client_address import ClientAddress
from gliner_bento.settings import Settings, SettingsError

BODY = json.dumps(REQUEST | {"request_id": "mine"}).encode()


def sent_for(client: str) -> bytes:
    lines = ["Host: a", "Content-Type: application/json", f"Content-Length: {len(BODY)}", f"X-Forwarded-For: {client}"]
    return "\r\n".join(["POST /v1/extract HTTP/1.1", *lines, "", ""]).encode() + BODY


def test_a_client_behind_a_trusted_proxy_is_not_refused_for_what_others_behind_it_send():
    async def scene():
        async with serving(forwarded_allow_ips=("127.0.0.1",)) as served:
            measured(served.app.gateway, 1.0)  # enough for one who sends little
            noisy, quiet = await served.connect(), await served.connect()
            assert (await noisy.answer(sent_for("127.0.0.1"))).status_code == 429  # this tenant overloads it
            assert served.reached == []
            quiet.writer.write(sent_for("203.0.113.7"))
            await until(lambda: bool(served.reached))
            await served.recover()
            assert (await quiet.answer()).status_code == 200
            assert served.replica.calls[-1][1].request_id == "203.0.113.7/mine"

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("trusted", "statuses"), [(("127.0.0.0/8",), [200, 200, 429, 429]), ((), [200, 429, 429, 429])], ids=["proxy", "no"]
)
def test_a_rate_is_that_of_the_forwarded_address_only_if_its_proxy_is_trusted(trusted, statuses):
    async def scene():
        async with serving(load=False, max_tenant_requests_per_s=1, forwarded_allow_ips=trusted) as served:
            client = await served.connect()
            addresses = ["203.0.113.7", "203.0.113.8", "203.0.113.7", "203.0.113.8"]
            answered = [(await client.answer(sent_for(address))).status_code for address in addresses]
            owners = {call[1].request_id for call in served.replica.calls}
        assert answered == statuses
        assert owners == ({f"{address}/mine" for address in addresses} if trusted else {"127.0.0.1/mine"})

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ([], "10.0.0.2"),
        (["203.0.113.7"], "203.0.113.7"),
        (["198.51.100.1, 203.0.113.7, 10.0.0.3"], "203.0.113.7"),
        (["198.51.100.1", "203.0.113.7:4000"], "203.0.113.7"),
        (["[2001:db8::1]:4000"], "2001:db8::1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(forwarded, expected):
    headers = [(b"x-forwarded-for", one.encode()) for one in forwarded]
    address = ClientAddress(("10.0.0.0/24",))
    assert address.of({"client": ("10.0.0.2", 1), "headers": headers}) == expected
    assert address.of({"client": ("10.0.1.2", 1), "headers": headers}) == "10.0.1.2"
    assert address.of({"client": None, "headers": headers}) == ""


def test_proxies_are_a_setting_and_uvicorns_variable(monkeypatch):
    assert Settings.load().forwarded_allow_ips == ()
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.0/8,::1")
    assert Settings.load().forwarded_allow_ips == ("10.0.0.0/8", "::1")
    monkeypatch.setenv("GLINER_FORWARDED_ALLOW_IPS", "*")
    assert Settings.load().forwarded_allow_ips == ("*",)
    with pytest.raises(SettingsError, match=re.escape("must be an IP address, a network (10.0.0.0/8), or *")):
        Settings.load({"forwarded_allow_ips": "proxy.example"})

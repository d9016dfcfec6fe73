"""LiteLLM's guardrail with mappings in a real Redis, for two gateways. Whatever happens to Redis, nothing passes
unredacted."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from gateway_options import OPTIONS
from pydantic import SecretStr
from test_recognizers_of_requests import Scripted

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.privacy.sealing import Sealer
from gliner_bento.settings import Settings, SettingsError
from reliability.redis_server import PROGRAM, RedisServer

pytest.importorskip("redis", reason="needs the extra redis")

from gliner_bento.gateway import redis_mappings  # imports redis

needs_redis = pytest.mark.skipif(not PROGRAM, reason="needs redis-server, a package of Debian")
LARGE = dataclasses.replace(OPTIONS, max_body_bytes=2**20, max_batch_items=20, max_labels=10)
ORIGINALS = ("Ada Ng", "4111 1111 1111 1111")
TEXT = "{} pays with {}".format(*ORIGINALS)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine is no failure."""
    monkeypatch.setattr(redis_mappings, "_TIMEOUT_S", 120.0)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="redis-") as folder, RedisServer(Path(folder)) as server:
        yield server


class Guard:
    """One gateway process."""

    def __init__(self, server: RedisServer, **options: object) -> None:
        self.app = GatewayApp(dataclasses.replace(LARGE, redis_url=SecretStr(server.url), **options))
        self.app.bind(Scripted(("Ada Ng", "person")))

    async def send(self, input_type: str, text: str, status: int = 200) -> dict[str, object]:
        body = {"input_type": input_type, "texts": [text], "litellm_call_id": "c", "litellm_trace_id": "t"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test") as client:
            response = await client.post("/beta/litellm_basic_guardrail_api", json=body)
        assert response.status_code == status, response.text
        return response.json()

    async def is_refused(self, caplog: pytest.LogCaptureFixture) -> bool:
        """Whether requests and responses are refused: with an error that LiteLLM does not count as unreachable, and
        without any original."""
        for input_type in ("request", "response"):
            answer = await self.send(input_type, TEXT, status=507)
            assert answer["error"]["code"] == "storage_unavailable"
            assert "redis_url" in answer["error"]["message"]
            assert not any(one in json.dumps(answer) + caplog.text for one in ORIGINALS)
        return True


@asynccontextmanager
async def guards(*given: Guard):
    try:
        yield given
    finally:
        for one in given:
            await one.app.gateway.aclose()


@needs_redis
def test_a_response_is_restored_by_another_gateway_and_redis_sees_no_original(server):
    from redis.asyncio import Redis

    async def scene() -> None:
        seen = Redis(unix_socket_path=str(server.socket))
        async with seen, guards(Guard(server), Guard(server)) as (one, two):
            redacted = await one.send("request", TEXT)
            assert redacted["texts"] == ["[PERSON_1] pays with [CREDIT_CARD_1]"]
            assert (await two.send("response", "Dear [PERSON_1]"))["texts"] == ["Dear Ada Ng"]
            assert (await two.send("request", "[PERSON_1], Ada Ng"))["texts"] == ["[PERSON_1], [PERSON_1]"]
            keys = await seen.keys("*")
            assert len(keys) == 2
            for key in keys:
                assert 0 < await seen.ttl(key) <= LARGE.mapping_lifetime_s
                entry = key + await seen.get(key)
                assert not any(original.encode() in entry for original in ORIGINALS)

    asyncio.run(scene())


@needs_redis
def test_without_redis_nothing_passes(server, caplog, monkeypatch):
    guard = Guard(server)
    monkeypatch.setattr(redis_mappings, "_TIMEOUT_S", 0.2)
    hasty = Guard(server)

    async def scene() -> None:
        async with guards(guard, hasty):
            await guard.send("request", TEXT)
            server.stop()
            assert await hasty.is_refused(caplog)
            server.kill()
            assert await guard.is_refused(caplog)
            server.start()
            assert (await guard.send("response", "[PERSON_1]"))["action"] == "NONE", "the mapping is lost"
            assert (await guard.send("request", TEXT))["texts"] == ["[PERSON_1] pays with [CREDIT_CARD_1]"]

    asyncio.run(scene())


@needs_redis
def test_a_full_redis_refuses_requests(server, caplog):
    async def scene() -> None:
        async with guards(Guard(server)) as (guard,):
            server.fill()
            answer = await guard.send("request", TEXT, status=507)
            assert [*answer] == ["error"]
            assert "maxmemory" in caplog.text

    asyncio.run(scene())


async def deleted(redis, keys):
    """Also what Redis does with keys that expire, or that `maxmemory` evicts."""
    await redis.delete(*keys)


async def of_another_type(redis, keys):
    await redis.delete(*keys)
    for key in keys:
        await redis.lpush(key, TEXT)


async def changed_by_others(redis, keys):
    await redis.mset({key: (await redis.get(key))[:-3] for key in keys})


async def sealed_long_ago(redis, keys):
    lifetime_s = LARGE.mapping_lifetime_s
    secret = LARGE.redaction_key.get_secret_value().encode()
    sealer = Sealer([secret], max_bytes=5000, lifetime_s=lifetime_s, clock=lambda: time.time() - 2 * lifetime_s)
    await redis.mset(dict.fromkeys(keys, sealer.seal("", {"[PERSON_1]": "Ada Ng"})))


async def not_text(redis, keys):
    await redis.mset(dict.fromkeys(keys, b"\xff\xfe"))


async def read_only(redis, _keys):
    await redis.config_set("min-replicas-to-write", 1)


async def with_a_password(redis, _keys):
    await redis.config_set("requirepass", "another")
    await redis.client_kill_filter(_type="normal", skipme=True)


@needs_redis
@pytest.mark.parametrize(
    ("fault", "request_status", "response"),
    [
        (deleted, 200, "NONE"),
        (of_another_type, 200, "NONE"),
        (changed_by_others, 200, "NONE"),
        (sealed_long_ago, 200, "NONE"),
        (not_text, 507, "storage_unavailable"),
        (read_only, 507, "GUARDRAIL_INTERVENED"),
        (with_a_password, 507, "storage_unavailable"),
    ],
)
def test_whatever_redis_has_nothing_passes(server, fault, request_status, response):
    """A response keeps its placeholders, or is refused; a request is redacted, or refused."""
    from redis.asyncio import Redis

    async def scene() -> None:
        async with Redis(unix_socket_path=str(server.socket)) as redis, guards(Guard(server)) as (guard,):
            await guard.send("request", TEXT)
            await fault(redis, await redis.keys("*"))
            answer = await guard.send("response", "[PERSON_1]", status=507 if response.islower() else 200)
            assert response == (answer["error"]["code"] if "error" in answer else answer["action"])
            assert ("Ada Ng" in json.dumps(answer)) is (response == "GUARDRAIL_INTERVENED")
            answer = await guard.send("request", TEXT, status=request_status)
            assert answer.get("texts") == (["[PERSON_1] pays with [CREDIT_CARD_1]"] if request_status == 200 else None)
            assert not any(original in json.dumps(answer) for original in ORIGINALS)

    asyncio.run(scene())


@needs_redis
def test_a_mapping_of_another_key_is_not_used(server):
    async def scene() -> None:
        other = SecretStr("another-key-of-the-tests-with-40-characters")
        async with guards(Guard(server), Guard(server, redaction_key=other)) as (one, two):
            await one.send("request", TEXT)
            assert (await two.send("response", "[PERSON_1]"))["action"] == "NONE"
            assert (await two.send("request", TEXT))["texts"] == ["[PERSON_1] pays with [CREDIT_CARD_1]"]

    asyncio.run(scene())


@pytest.mark.parametrize("url", ["http://host", "redis://", "redis://:secret@host:port", "unix://"])
def test_a_wrong_url_ends_the_start_without_its_password(url):
    with pytest.raises(SettingsError, match=r"redis_url: must be redis://.* \(got a secret") as error:
        Settings.load({"redis_url": url})
    assert "secret@" not in str(error.value)


def test_a_url_is_never_shown():
    settings = Settings.load({"redis_url": "rediss://:hunter2@host:6379/0"})
    assert settings.redis_url.get_secret_value().endswith("host:6379/0")
    assert "hunter2" not in repr(settings)

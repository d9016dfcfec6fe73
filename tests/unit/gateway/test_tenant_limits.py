"""Limits per tenant: by themselves on a clock of their own, and over HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import ExitStack

import httpx
import pytest
from gateway_options import OPTIONS

from gliner_bento.errors import RateLimited
from gliner_bento.fairness.constants import MAX_IDLE_TENANTS
from gliner_bento.gateway.policy.rates import Rates
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.storage.api_keys import hash_of

A, B = Tenant("a"), Tenant("b")
REQUEST = {"text": "Ada met Charles.", "labels": ["name"]}


class Limits(Rates):
    """With a clock that the test sets."""

    def __init__(self, concurrency: int = 0, rate: float = 0.0) -> None:
        self.now_s = 0.0
        super().__init__(concurrency, rate)
        self._clock = lambda: self.now_s

    def admitted(self, tenant: Tenant, requests: int = 100) -> int:
        """How many of so many requests, one after the other, are admitted."""
        admitted = 0
        for _ in range(requests):
            try:
                with self.request(tenant):
                    admitted += 1
            except RateLimited as refusal:
                self.refusal = refusal
        return admitted


def test_without_limits_nothing_is_refused_and_nothing_kept():
    limits = Limits()
    assert limits.admitted(A) == 100
    assert limits.headers(A) == {}
    assert len(limits) == 0


def test_the_rate_is_a_bucket_of_one_second_for_each_tenant():
    limits = Limits(rate=10)
    assert limits.admitted(A) == 10
    assert limits.refusal.retry_after_s == 1
    assert limits.admitted(B, 4) == 4
    limits.now_s += 0.35
    assert limits.admitted(A) == 3
    limits.now_s += 60
    assert limits.admitted(A) == 10


def test_a_slow_rate_has_a_bucket_of_one_request():
    limits = Limits(rate=0.1)
    assert limits.admitted(A) == 1
    assert limits.refusal.retry_after_s == 10
    limits.now_s += 9.9
    assert limits.admitted(A) == 0
    limits.now_s += 0.2
    assert limits.admitted(A) == 1


def test_concurrency_counts_requests_under_way():
    limits = Limits(concurrency=2)
    with ExitStack() as running:
        running.enter_context(limits.request(A))
        running.enter_context(limits.request(A))
        assert limits.admitted(A) == 0
        assert limits.admitted(B) == 100
    assert limits.admitted(A) == 100


def test_a_refused_request_takes_nothing():
    limits = Limits(concurrency=1, rate=10)
    with limits.request(A):
        assert limits.admitted(A) == 0
    assert limits.admitted(A) == 9


def test_a_tenants_own_limits_replace_the_settings():
    limits = Limits(concurrency=1, rate=1)
    fast = Tenant("fast", max_concurrency=3, max_requests_per_s=20)
    assert limits.admitted(fast) == 20
    assert limits.admitted(Tenant("free", max_concurrency=0, max_requests_per_s=0)) == 100
    slow = Limits()
    assert slow.admitted(Tenant("slow", max_requests_per_s=5)) == 5
    assert str(slow.refusal) == "requests per second of this tenant: 5 (max_requests_per_s of its key)"


def test_the_headers_show_the_limit_that_is_reached_first():
    limits = Limits(concurrency=8, rate=5)
    with limits.request(A):
        assert limits.headers(A) == {
            "X-RateLimit-Limit": "5",
            "X-RateLimit-Remaining": "4",
            "X-RateLimit-Reset": "1",
        }
        limits.now_s += 10
        with ExitStack() as running:
            for _ in range(5):
                running.enter_context(limits.request(A))
                limits.now_s += 1
            assert limits.headers(A) == {
                "X-RateLimit-Limit": "8",
                "X-RateLimit-Remaining": "2",
                "X-RateLimit-Reset": "1",
            }


def test_memory_is_bounded_whatever_the_number_of_tenants():
    limits = Limits(rate=1)
    with limits.request(A):
        for number in range(MAX_IDLE_TENANTS + 500):
            limits.admitted(Tenant(f"t{number}"), 1)
        assert len(limits) == MAX_IDLE_TENANTS + 1
        assert limits.admitted(A, 1) == 0, "a tenant with requests under way is not forgotten"


@pytest.fixture
def limited(serving, replica):
    """A client of a server with these limits."""
    return lambda **limits: serving(replica, dataclasses.replace(OPTIONS, tenant_header="X-Tenant", **limits))


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/stream", "/gliner"])
def test_more_than_the_rate_is_answered_429(limited, path):
    client = limited(max_tenant_requests_per_s=2)

    async def scene():
        answers = [await client.post(path, json=REQUEST, headers={"X-Tenant": "a"}) for _ in range(3)]
        other = await client.post(path, json=REQUEST, headers={"X-Tenant": "b"})
        model = await client.get("/v1/model", headers={"X-Tenant": "a"})
        return answers, other, model

    (first, _, third), other, model = asyncio.run(scene())
    assert (first.status_code, first.headers["X-RateLimit-Limit"]) == (200, "2")
    assert third.status_code == 429
    assert "max_tenant_requests_per_s" in third.text
    assert int(third.headers["Retry-After"]) == 1
    assert third.headers["X-RateLimit-Remaining"] == "0"
    assert int(third.headers["X-RateLimit-Reset"]) >= 1
    assert (other.status_code, other.headers["X-RateLimit-Remaining"]) == (200, "1")
    assert model.status_code == 200
    assert "X-RateLimit-Limit" not in model.headers


def test_more_than_the_concurrency_is_answered_429_until_one_is_answered(limited, replica):
    client = limited(max_tenant_concurrency=2)
    replica.step = lambda: False

    async def scene():
        running = [asyncio.ensure_future(client.post("/v1/extract", json=REQUEST)) for _ in range(2)]
        while len(replica.calls) < 2:
            await asyncio.sleep(0)
        refused = await client.post("/v1/extract", json=REQUEST)
        replica.step = lambda: True
        return refused, await asyncio.gather(*running), await client.post("/v1/extract", json=REQUEST)

    refused, answers, later = asyncio.run(scene())
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
    assert refused.headers["Retry-After"] == "1"
    assert (refused.headers["X-RateLimit-Limit"], refused.headers["X-RateLimit-Remaining"]) == ("2", "0")
    assert [answer.status_code for answer in (*answers, later)] == [200] * 3


def test_an_api_key_has_its_own_limits(serving, replica):
    entry = f"- {{name: team, sha256: {hash_of('secret')}, max_requests_per_s: 1, max_concurrency: 7}}"
    client = serving(replica, dataclasses.replace(OPTIONS, api_keys=entry, max_tenant_requests_per_s=100))

    async def ask() -> httpx.Response:
        return await client.post("/v1/extract", json=REQUEST, headers={"Authorization": "Bearer secret"})

    async def scene():
        return await ask(), await ask()

    first, second = asyncio.run(scene())
    assert (first.status_code, first.headers["X-RateLimit-Limit"]) == (200, "1")
    assert second.status_code == 429


def test_max_queued_tokens_is_answered_429_with_retry_after(limited, replica):
    client = limited(max_queued_tokens=20)
    replica.step = lambda: False

    async def scene():
        running = asyncio.ensure_future(client.post("/v1/extract", json=REQUEST | {"text": "Ada " * 20}))
        while not replica.calls:
            await asyncio.sleep(0)
        refused = await client.post("/v1/extract", json=REQUEST | {"text": "Ada " * 20})
        replica.step = lambda: True
        return refused, await running

    refused, answer = asyncio.run(scene())
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    assert answer.status_code == 200


def test_what_is_late_is_answered_504_with_retry_after(limited, replica):
    replica.step = lambda: False
    late = asyncio.run(limited().post("/v1/extract", json=REQUEST | {"timeout_ms": 20}))
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert int(late.headers["Retry-After"]) >= 1
    assert not replica.passes


def test_a_full_queue_is_answered_429_with_retry_after(limited, replica):
    replica.queue_capacity = 0
    refused = asyncio.run(limited().post("/v1/extract", json=REQUEST))
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1

"""What a client of two replicas of the bundled model sees, whatever carries the requests to them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from saved_adapters import BODY, put, scores, zipped

CONCURRENT = 16


def replicas(http: httpx.Client) -> list[dict[str, Any]]:
    """None while the server cannot answer."""
    answer = http.get("/v1/replicas")
    return answer.json()["replicas"] if answer.is_success else []


def requests(http: httpx.Client) -> Sequence[int]:
    return [one["requests"] for one in replicas(http)]


def assert_divided(http: httpx.Client) -> None:
    """Requests go to both."""
    before = requests(http)
    with ThreadPoolExecutor(CONCURRENT) as pool:
        answers = list(pool.map(lambda _: http.post("/v1/extract", json=BODY), range(2 * CONCURRENT)))
    assert {answer.status_code for answer in answers} == {200}
    sent = [after - earlier for after, earlier in zip(requests(http), before, strict=True)]
    assert sum(sent) == 2 * CONCURRENT
    assert min(sent) > 0
    assert http.get("/v1/model").json()["family"] == "UniEncoderSpanRelexGLiNER"


def assert_adapters_are_on_both(http: httpx.Client, adapters: dict[str, Path]) -> None:
    """An adapter is in the memory of both, used by both, and deleted from both."""
    assert put(http, "tenant-a", zipped(adapters["one"])).status_code == 201
    assert [one["resident_adapters"] for one in replicas(http)] == [["tenant-a"]] * 2
    expected = scores(http, "tenant-a")
    assert expected != scores(http)
    before = requests(http)
    with ThreadPoolExecutor(CONCURRENT) as pool:
        for answer in pool.map(lambda _: scores(http, "tenant-a"), range(2 * CONCURRENT)):
            assert answer == pytest.approx(expected, abs=1e-4)
    assert min(after - earlier for after, earlier in zip(requests(http), before, strict=True)) > 0
    http.delete("/v1/adapters/tenant-a").raise_for_status()
    body = BODY | {"adapter_id": "tenant-a"}
    assert {http.post("/v1/extract", json=body).status_code for _ in range(6)} == {404}


def assert_an_abort_reaches_both(http: httpx.Client, texts: Sequence[str], labels: Sequence[str]) -> None:
    """Of a request that is divided."""
    body = {"texts": texts, "labels": labels, "request_id": "long", "timeout_ms": 200_000}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(http.post, "/v1/extract/batch", json=body)
        while min(one["outstanding_tokens"] for one in replicas(http)) == 0:
            assert not asked.done()
        assert http.post("/v1/requests/long/abort").json()["aborted"] is True
        results = asked.result().json()["results"]
    aborted = [place for place, one in enumerate(results) if one["error"] and one["error"]["code"] == "aborted"]
    assert aborted
    assert min(aborted) < len(results) / 2 < max(aborted), "each half was on one replica"
    assert http.post("/v1/requests/long/abort").json()["aborted"] is False

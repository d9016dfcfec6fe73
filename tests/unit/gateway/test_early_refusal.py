"""Requests that are refused when their headers are complete: over real connections, before they reach the app."""

from __future__ import annotations

import asyncio
import gc
import json
import logging

import httpx
import pytest
from gateway_options import OPTIONS
from overloaded_server import serving
from overloading import REQUEST, TOKENS, measured
from replica_calls import until

from gliner_bento.gateway.refuse_early import EarlyRefusal
from gliner_bento.storage.api_keys import hash_of
from gliner_bento.telemetry.metrics import process_metrics

pytestmark = pytest.mark.long

BODY = json.dumps(REQUEST).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
KEYS = json.dumps(
    [
        {"name": "a", "sha256": hash_of("key-a")},
        {"name": "metrics", "sha256": hash_of("key-metrics"), "scopes": ["metrics"]},
    ]
)


def post(headers: bytes = LENGTH, path: bytes = b"/v1/extract", version: bytes = b"1.1") -> bytes:
    return b"POST %s HTTP/%s\r\nHost: a\r\nContent-Type: application/json\r\n%s\r\n" % (path, version, headers)


GET = b"GET /v1/model HTTP/1.1\r\nHost: a\r\n\r\n"


def refused(response: httpx.Response, code: str = "queue_full") -> bool:
    return (response.status_code, response.json()["error"]["code"]) == (429, code)


@pytest.mark.parametrize(
    ("head", "body"),
    [(post(), BODY), (post(b"Transfer-Encoding: chunked\r\n"), CHUNKED), (post(b"Content-Length: 0\r\n"), b"")],
    ids=["length", "chunked", "empty"],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_refusal_needs_no_body_and_keeps_the_connection(head, body, together):
    async def scene():
        async with serving() as served:
            client = await served.connect()
            for _ in range(3):
                if together:
                    assert refused(await client.answer(head + body))
                else:
                    assert refused(await client.answer(head))
                    client.writer.write(body[:7])
                    await asyncio.sleep(0.01)
                    client.writer.write(body[7:])
            assert served.reached == []
            assert (await client.answer(GET)).status_code == 200
            await served.recover()
            assert (await client.answer(head + body)).status_code == (200 if body else 422)
            assert served.reached == ["/v1/model", "/v1/extract"]

    asyncio.run(scene())


def test_refusals_leave_no_work_for_the_garbage_collector():
    """Reference cycles are freed by the collector alone, which stops the event loop."""

    async def scene():
        async with serving() as served:
            client = await served.connect()
            assert refused(await client.answer(post() + BODY))
            gc.collect()
            gc.disable()
            try:
                for _ in range(20):
                    assert refused(await client.answer(post() + BODY))
                assert gc.collect() < 20
            finally:
                gc.enable()

    asyncio.run(scene())


@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/batch", "/v1/extract/stream", "/gliner", "/v1/extract/"])
@pytest.mark.parametrize("prefix", ["", "/models/memory"])
@pytest.mark.parametrize("settings", [{}, {"max_tenant_concurrency": 1000}])
def test_it_is_the_response_that_the_app_gives(prefix, path, settings):
    path = prefix + path

    async def scene():
        async with serving(**settings) as served:
            normal = await served.in_process.post(path, json=REQUEST, headers={"X-Request-ID": "mine"})
            client = await served.connect()
            early = await client.answer(post(LENGTH + b"X-Request-ID: mine\r\n", path.encode()) + BODY)
            assert served.reached == []
            assert early.status_code == 429
            assert early.json() == normal.json()
            assert early.headers["x-request-id"] == "mine"
            assert int(early.headers["retry-after"]) >= 1
            assert ("x-ratelimit-limit" in early.headers) == bool(settings)
            of_uvicorn = {"date", "server"}
            assert sorted(early.headers.multi_items()) == sorted(
                [*normal.headers.multi_items(), *((name, early.headers[name]) for name in of_uvicorn)]
            )

    asyncio.run(scene())


def test_pipelined_requests_are_answered_in_order():
    many = 500

    async def scene():
        async with serving() as served:
            client = await served.connect()
            assert refused(await client.answer((post() + BODY) * 2 + GET + (post() + BODY) * many + GET))
            answers = [await client.answer() for _ in range(1 + 1 + many + 1)]
            assert refused(answers[0])
            assert (answers[1].status_code, answers[-1].status_code) == (200, 200)
            assert all(map(refused, answers[2:-1]))

    asyncio.run(scene())


@pytest.mark.parametrize("path", ["/v1/extract", "/models/memory/v1/extract"])
@pytest.mark.parametrize("direct", [True, False])
def test_extractions_may_skip_the_outer_app_and_nothing_else_does(direct, path):
    async def scene():
        async with serving(load=False, direct=direct) as served:
            client = await served.connect()
            normal = await served.in_process.post("/v1/extract", json=REQUEST | {"request_id": "mine"})
            body = json.dumps(REQUEST | {"request_id": "mine"}).encode()
            pipelined = (post(b"Content-Length: %d\r\n" % len(body), path.encode()) + body) * 2 + GET
            answers = [await client.answer(pipelined), await client.answer()]
            assert [answer.content for answer in answers] == [normal.content] * 2
            assert (await client.answer()).status_code == 200
            assert served.reached == [path] * 2 * (not direct) + ["/v1/model"]

    asyncio.run(scene())


def test_refusals_wait_while_the_client_does_not_read():
    async def scene():
        async with serving() as served:
            client, reading = await served.connect(2**14), await served.connect(2**14)  # little is under way
            connections = served.server.server_state.connections
            await until(lambda: len(connections) == 2)
            sent, paused = 0, []

            async def send():
                nonlocal sent
                while not paused:
                    sent += 500
                    await client.send((post() + BODY) * 500)

            sending = asyncio.ensure_future(send())
            while not paused:
                paused = [one for one in connections if one.flow.write_paused]
                await asyncio.sleep(0.001)
            before = sum(one.transport.get_write_buffer_size() for one in paused)
            for _ in range(100):
                assert refused(await reading.answer(post() + BODY))
            assert sum(one.transport.get_write_buffer_size() for one in paused) < before + 2**13
            for _ in range(sent):
                assert refused(await client.answer())
            await sending

    asyncio.run(scene())


def test_a_client_that_waits_for_100_continue_is_refused_without_it():
    async def scene():
        async with serving(keep_alive_timeout_s=1) as served:
            silent, hasty = await served.connect(), await served.connect()
            for client in (silent, hasty):
                response = await client.answer(post(LENGTH + b"Expect: 100-continue\r\n"))
                assert refused(response)
                assert response.headers["connection"] == "close"
            hasty.writer.write(BODY)
            assert await hasty.closed()
            assert await silent.closed()
            assert served.reached == []

    asyncio.run(scene())


@pytest.mark.parametrize("head", [post(version=b"1.0"), post(LENGTH + b"Connection: close\r\n")])
def test_a_connection_that_is_not_kept_closes_after_the_body(head):
    """Closed before, it would be reset by the body, and the client would lose the response."""

    async def scene():
        async with serving() as served:
            for pieces in ([head + BODY], [head, BODY[:9], BODY[9:]]):
                client = await served.connect()
                for piece in pieces:
                    client.writer.write(piece)
                    await asyncio.sleep(0.01)
                response = await client.answer()
                assert refused(response)
                assert response.headers["connection"] == "close"
                assert await client.closed()
            assert served.reached == []

    asyncio.run(scene())


def test_a_refused_body_is_dropped_up_to_the_largest_that_is_allowed():
    size = 20 * 2**20
    head = post(b"Content-Length: %d\r\n" % size)

    async def scene():
        async with serving(max_adapter_bytes=size) as served:
            client = await served.connect()
            assert refused(await client.answer(head + b" " * size))
            assert (await client.answer(GET)).status_code == 200
        async with serving(max_adapter_bytes=2**20) as served:
            client = await served.connect()
            assert refused(await client.answer(head))
            with pytest.raises(ConnectionError):
                await client.send(b" " * size)

    asyncio.run(scene())


def test_nothing_else_is_refused():
    async def scene():
        async with serving() as served:
            client = await served.connect()
            for path in ("/readyz", "/livez", "/v1/model", "/v1/adapters", "/v1/status", "/metrics"):
                assert (await client.answer(GET.replace(b"/v1/model", path.encode()))).status_code == 200, path
            aborting = await client.answer(post(b"Content-Length: 0\r\n", b"/v1/requests/none/abort"))
            assert aborting.json()["aborted"] is False
            putting = post(path=b"/v1/adapters/x").replace(b"POST", b"PUT") + BODY
            assert (await client.answer(putting)).status_code == 422
            assert (await client.answer(GET.replace(b"/v1/model", b"/v1/extract"))).status_code == 405

    asyncio.run(scene())


def test_a_page_of_another_origin_gets_the_apps_refusal():
    async def scene():
        async with serving(cors_origins=("https://a.example",)) as served:
            client = await served.connect()
            page = await client.answer(post(LENGTH + b"Origin: https://a.example\r\n") + BODY)
            assert refused(page)
            assert page.headers["access-control-allow-origin"] == "https://a.example"

    asyncio.run(scene())


def test_a_request_that_cannot_be_refused_early_for_a_fault_of_ours_is_answered_by_the_app(monkeypatch, caplog):
    many = 5  # at a time: some wait for a turn

    def fail(*_):
        raise RuntimeError("a fault")

    async def scene():
        async with serving(load=False) as served:
            monkeypatch.setattr(EarlyRefusal, "refuse", fail)
            clients = [await served.connect() for _ in range(many)]
            answers = await asyncio.gather(*(client.answer(post() + BODY) for client in clients))
            assert [answer.status_code for answer in answers] == [200] * many

    asyncio.run(scene())
    written = [record for record in caplog.records if record.exc_info]
    assert {record.getMessage() for record in written} == {"POST /v1/extract could not be refused early"}
    assert {str(record.exc_info[1]) for record in written} == {"a fault"}


def test_a_refusal_has_the_body_of_the_routes_format():
    async def scene():
        async with serving() as served:
            normal = await served.in_process.post("/pooling", json={})
            early = await (await served.connect()).answer(post(path=b"/pooling") + BODY)
            assert early.status_code == normal.status_code == 429
            assert early.json() == normal.json()
            assert early.json()["error"]["type"] == "RateLimitError"
            assert int(early.headers["retry-after"]) >= 1

    asyncio.run(scene())


def test_who_has_no_key_gets_401_and_not_429():
    async def scene():
        async with serving(api_keys=KEYS, key="key-a") as served:
            client = await served.connect()
            statuses = {}
            for key in (b"", b"X-API-Key: wrong\r\n", b"X-API-Key: key-metrics\r\n", b"X-API-Key: key-a\r\n"):
                statuses[key] = (await client.answer(post(LENGTH + key) + BODY)).status_code
            assert list(statuses.values()) == [401, 401, 403, 429]
            assert len(served.reached) == 3

    asyncio.run(scene())


@pytest.mark.parametrize("path", [b"/v1/extract", b"/models/memory/v1/extract"])
def test_a_tenants_rate_counts_each_request_once(path):
    async def scene():
        async with serving(load=False, max_tenant_requests_per_s=2) as served:
            client = await served.connect()
            answers = [await client.answer(post(path=path) + BODY) for _ in range(4)]
            assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
            assert refused(answers[-1], "rate_limited")
            assert answers[-1].headers["x-ratelimit-remaining"] == "0"
            assert served.reached == [path.decode()] * 2

    asyncio.run(scene())


def test_a_refusal_for_overload_counts_against_the_tenants_rate():
    async def scene():
        async with serving(max_tenant_requests_per_s=200) as served:
            client = await served.connect()
            answers = [await client.answer(post() + BODY) for _ in range(220)]
            counted = [answer.json()["error"]["code"] for answer in answers]
            left = counted.count("queue_full")
            assert 0 < left <= 200
            assert counted == ["queue_full"] * left + ["rate_limited"] * (220 - left)
            remaining = [int(answer.headers["x-ratelimit-remaining"]) for answer in answers[:left]]
            assert remaining == list(range(left - 1, -1, -1))

    asyncio.run(scene())


def test_every_refusal_is_in_the_metrics_and_the_access_log(caplog):
    caplog.set_level(logging.INFO, "gliner_bento.access")
    labels = {"route": "/v1/extract", "method": "POST", "status": "429"}

    registry = process_metrics().registry

    def counted():
        return [
            registry.get_sample_value("gliner_http_requests_total", labels) or 0,
            registry.get_sample_value("gliner_http_request_seconds_count", {"route": "/v1/extract"}) or 0,
            registry.get_sample_value("gliner_errors_total", {"code": "queue_full"}) or 0,
        ]

    async def scene():
        async with serving() as served:
            caplog.clear()
            before = counted()
            client = await served.connect()
            for number in range(50):
                await client.answer(post(LENGTH + b"X-Request-ID: r%d\r\n" % number) + BODY)
            assert [after - earlier for after, earlier in zip(counted(), before, strict=True)] == [50, 0, 50]
            lines = [record.fields for record in caplog.records if record.name == "gliner_bento.access"]
            assert [line["request_id"] for line in lines] == [f"r{number}" for number in range(50)]
            lines[0].pop("duration_ms")
            assert lines[0] == {
                "request_id": "r0",
                "tenant": "127.0.0.1",
                "method": "POST",
                "route": "/v1/extract",
                "status": 429,
                "items": 0,
                "tokens": 0,
                "error": "queue_full",
            }

    asyncio.run(scene())


@pytest.mark.parametrize("together", [True, False])
def test_a_request_is_refused_for_the_deadline_in_its_body(together):
    short, long = (json.dumps(REQUEST | {"timeout_ms": value}).encode() for value in (2000, 29_000))
    wrong = json.dumps(REQUEST | {"timeout_ms": "2000"}).encode()
    head = {body: post(b"Content-Length: %d\r\n" % len(body)) for body in (short, long, wrong)}

    async def answer(client, body):
        if together:
            return await client.answer(head[body] + body)
        client.writer.write(head[body] + body[:9])
        await asyncio.sleep(0.01)
        return await client.answer(body[9:])

    async def scene():
        async with serving() as served:
            measured(served.app.gateway, 200.0)  # those under way take 6 s
            client = await served.connect()
            for _ in range(3):
                assert refused(await answer(client, short))
            assert refused(await client.answer((head[short] + short) * 2))
            assert refused(await client.answer())
            assert served.reached == []
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(short), short)
            assert refused(await client.answer(post(b"Transfer-Encoding: chunked\r\n") + chunked))
            assert served.reached == ["/v1/extract"], "a body of unknown length is the app's to read"
            assert (await answer(client, wrong)).status_code == 422
            calls = len(served.replica.calls)
            client.writer.write(head[long] + long)
            await until(lambda: len(served.replica.calls) > calls)
            await served.recover()
            assert (await client.answer()).status_code == 200

    asyncio.run(scene())


def test_a_body_that_is_awaited_for_its_deadline_must_arrive_in_time():
    async def scene():
        async with serving(load=False, body_timeout_s=0.2) as served:
            leaving, slow = await served.connect(), await served.connect()
            leaving.writer.write(post() + BODY[:9])
            assert (await slow.answer(post() + BODY[:9])).status_code == 408
            leaving.writer.close()
            client = await served.connect()
            assert (await client.answer(post() + BODY)).status_code == 200
            assert served.reached == ["/v1/extract"]

    asyncio.run(scene())


def test_requests_that_wait_to_be_read_count_as_load():
    """Else all that come while the first is admitted wait behind it, to be refused."""

    async def scene():
        async with serving() as served:
            early, arrival, leaving = served.app.early, served.arrival, []
            assert early.refuse(arrival)
            await served.recover()
            assert early.refuse(arrival) is None
            while early.refuse(arrival) is None:
                leaving.append(early.count_unread(arrival))
            assert OPTIONS.max_batch_size <= len(leaving)
            leaving.pop()()
            assert early.refuse(arrival) is None
            for leave in leaving:
                leave()

    asyncio.run(scene())


def test_a_request_that_was_let_in_keeps_its_place_until_its_turn():
    async def scene():
        async with serving() as served:
            early, arrival, leaving = served.app.early, served.arrival, []
            await served.recover()
            measured(served.app.gateway, 20 * TOKENS / served.options.request_timeout_s)
            while early.refuse(arrival) is None:
                leaving.append(early.count_unread(arrival))
            await early._pacer.wait()  # so that the next one waits
            assert await early.await_turn(arrival) is None
            assert early.refuse(arrival)
            for leave in leaving:
                leave()

    asyncio.run(scene())


def test_an_overloaded_model_refuses_no_request_for_another_one():
    def naming(model):
        body = json.dumps(REQUEST | {"model": model}).encode()
        return b"Content-Length: %d\r\n" % len(body), body

    async def scene():
        async with serving(other="idle") as served:
            client = await served.connect()
            length, body = naming("busy")
            assert refused(await client.answer(post(length) + body))
            assert served.reached == [], "its body names the model"
            length, body = naming("idle")
            assert (await client.answer(post(length) + body)).status_code == 200
            for path in (b"/predictions/idle", b"/models/idle/v1/extract", b"/v1/extract?model=idle"):
                assert (await client.answer(post(path=path) + BODY)).status_code == 200
            before = len(served.reached)
            for path in (b"/models/busy/v1/extract", b"/models/busy/gliner", b"/v1/extract?model=busy"):
                assert (await client.answer(post(path=path) + BODY)).status_code == 429
            length, body = naming("idle")
            in_both = post(length, b"/models/busy/v1/extract") + body
            assert (await client.answer(in_both)).status_code == 200, "the body is read before the decision"
            assert len(served.reached) == before + 1
            assert refused(await client.answer(post() + BODY)), "the default's"
            idle = await served.app.gateway.models.find("idle")
            idle.policy.check = served.app.gateway.models.default.policy.check
            before = len(served.reached)
            assert refused(await client.answer(post(b"Transfer-Encoding: chunked\r\n") + CHUNKED))
            assert len(served.reached) == before, "all are overloaded, whichever the request is for"

    asyncio.run(scene())

"""The load generator, against a small real server."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.loadtest.load import Run, TimedResponse, closed_loop, open_loop, percentile_ms, schedule


class Server:
    """Answers the body it got: `bad` with 503, `never` not at all; records the highest concurrency. together: answers
    nothing before so many requests were under way."""

    def __init__(self, delay_s: float = 0.0, together: int = 1) -> None:
        self.delay_s, self.together, self.in_progress, self.highest_concurrency = delay_s, together, 0, 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.in_progress += 1
        self.highest_concurrency = max(self.highest_concurrency, self.in_progress)
        while self.highest_concurrency < self.together:
            await asyncio.sleep(0.001)
        await asyncio.sleep(600 if body == b"never" else self.delay_s)
        self.in_progress -= 1
        return web.Response(body=body, status=503 if body == b"bad" else 200)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    loop = asyncio.new_event_loop()
    application = web.Application()
    application.router.add_post("/", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    loop.run_until_complete(site.start())
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}/"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(ended(runner))
        loop.close()


async def ended(runner: web.AppRunner) -> None:
    await runner.cleanup()
    unfinished = asyncio.all_tasks() - {asyncio.current_task()}
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)


def test_a_closed_loop_keeps_its_concurrency_and_every_response():
    with serving(Server(delay_s=0.02, together=4)) as server:
        run = closed_loop(server.url, [b"a", b"b", b"bad"], concurrency=4, seconds=60, max_requests=30)
    assert server.highest_concurrency == 4
    assert [(reply.content, reply.status) for reply in run.replies if reply.body_index == 2] == [(b"bad", "503")] * 10
    assert {(reply.body_index, reply.content) for reply in run.replies} == {(0, b"a"), (1, b"b"), (2, b"bad")}
    summary = run.summary()
    assert (summary["requests"], summary["statuses"]) == (30, {"200": 20, "503": 10})
    assert summary["requests_per_s"] == pytest.approx(20 / run.seconds)
    assert summary["p50_ms"] >= 20


def test_a_closed_loop_ends_after_its_seconds():
    with serving(Server()) as server:
        run = closed_loop(server.url, [b"a"], concurrency=2, seconds=0.2)
    assert run.seconds >= 0.2
    assert run.replies


def test_an_open_loop_sends_on_schedule_without_responses_and_counts_them_as_unanswered():
    due = len(schedule(100.0, 0.5))
    for grace_s in (0.2, 1.0, 5.0, 25.0):  # on a slow machine it passes before all have arrived
        with serving(Server()) as server:
            run = open_loop(server.url, [b"never"], rate=100.0, seconds=0.5, grace_s=grace_s)
        if server.highest_concurrency == due:
            break
    assert server.highest_concurrency == due
    assert (run.unanswered, run.replies) == (due, [])
    assert run.summary()["requests"] == due


def test_no_garbage_collection_delays_requests():
    enabled = []

    class Bodies(list):
        def __getitem__(self, index):
            enabled.append(gc.isenabled())
            return super().__getitem__(index)

    with serving(Server()) as server:
        open_loop(server.url, Bodies([b"a"]), rate=100.0, seconds=0.1)
    assert enabled
    assert not any(enabled)
    assert gc.isenabled()


def test_an_open_loops_latency_counts_from_when_a_request_was_due():
    """A generator that is held up (here: by its own loop, blocked) must not forgive the server the wait."""
    with serving(Server()) as server:
        blocked = threading.Event()

        class Bodies(list):
            def __getitem__(self, index):
                if not blocked.is_set():
                    blocked.set()
                    threading.Event().wait(0.3)
                return super().__getitem__(index)

        run = open_loop(server.url, Bodies([b"a"]), rate=200.0, seconds=0.2)
    assert run.lag_s > 0.05
    assert max(reply.latency_s for reply in run.replies) >= 0.29


def test_a_server_that_is_not_there_is_an_error_by_name():
    run = closed_loop("http://127.0.0.1:9/", [b"a"], concurrency=1, seconds=60, max_requests=3)
    assert [reply.status for reply in run.replies] == ["ConnectionRefusedError"] * 3
    assert run.summary()["p50_ms"] is None


@given(st.floats(1, 500), st.floats(0.1, 20), st.integers(0, 5))
def test_a_schedule_is_in_order_in_time_and_drawn_from_its_seed(rate, seconds, seed):
    due = schedule(rate, seconds, seed)
    assert due == sorted(due) == schedule(rate, seconds, seed)
    assert all(0 < at < seconds for at in due)
    assert abs(len(due) - rate * seconds) <= 6 * (rate * seconds) ** 0.5 + 6


def test_percentiles_are_the_nearest_rank():
    values = [i / 1000 for i in range(1, 101)]
    assert [percentile_ms(values, percent) for percent in (1, 50, 95, 99, 100)] == pytest.approx([1, 50, 95, 99, 100])
    assert percentile_ms([0.007], 50) == pytest.approx(7)
    assert percentile_ms([], 50) is None


def test_failures_count_as_requests_and_not_as_speed():
    run = Run([TimedResponse(0, "200", b"", 0.5), TimedResponse(0, "503", b"", 0.001)], seconds=2.0, unanswered=1)
    summary = run.summary()
    assert (summary["requests"], summary["requests_per_s"], summary["p50_ms"]) == (3, 0.5, 500)

"""Limits on connections: a real uvicorn server, and clients that are slow, rude or too many."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest
import uvicorn
from gateway_options import OPTIONS
from waiting import PATIENCE_S, wait_until

from gliner_bento.fairness.constants import MAX_HEADER_BYTES, PACE_BYTES
from gliner_bento.gateway.http_protocol import HttpProtocol, RequestPart, limit_connections

pytestmark = pytest.mark.long

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
EARLY = REQUEST.replace(b"/", b"/early", 1)[:-1]
LARGE = 32 * 2**20
LIMITS = {"header_timeout_s": 3600.0, "body_timeout_s": 3600.0, "keep_alive_timeout_s": 3600}


class Loop(asyncio.SelectorEventLoop):
    """The server's; the test lets time pass."""

    ahead_s = 0.0

    def time(self):
        return super().time() + self.ahead_s

    def let_time_pass(self):
        """Return when all has run that is due within more than an hour."""
        passed = threading.Event()

        def let_pass():
            self.ahead_s += 4000.0
            self.call_later(0, passed.set)

        self.call_soon_threadsafe(let_pass)
        assert passed.wait(PATIENCE_S)


class App:
    """Answers after its body; `/hold` when `proceed` is set, `/halves` one half then, `/receive` never, `/large` with
    more than the buffers of sockets take, `/whole` with that in one piece, `/filled` with as much and a little more.

    loop, connections: the server's. received: bytes."""

    def __init__(self):
        self.loop, self.connections, self.received = Loop(), set(), 0
        self.begun, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.proceed = threading.Event()
        self.disconnected, self.bodies, self.headers = [], [], []

    async def __call__(self, scope, receive, send):
        self.begun.release()
        self.headers.append(scope["headers"])
        try:
            await self.answer(scope["path"], receive, send)
        finally:
            self.ended.release()

    async def answer(self, path, receive, send):
        message, body = {"more_body": path != "/early"}, b""
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        self.bodies.append(body)
        if message.get("type") == "http.disconnect":
            self.disconnected.append(path)
            return
        if path == "/hold":
            await self.may_proceed()
        if path == "/receive":
            message = await asyncio.wait_for(receive(), PATIENCE_S)
            self.disconnected.append((path, message["type"]))
            return
        if path == "/filled":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not self.unsent():
                await send({"type": "http.response.body", "body": b"x" * 2**10, "more_body": True})
            await send({"type": "http.response.body"})
            return
        size = {"/large": 100 * 2**20, "/whole": LARGE}.get(path, 2)
        piece = b"x" * {"/halves": 1, "/whole": LARGE}.get(path, min(size, 2**20))
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, size, len(piece)):
            if path == "/halves" and start:
                await self.may_proceed()
            await send({"type": "http.response.body", "body": piece, "more_body": start + len(piece) < size})

    def unsent(self):
        """Bytes that have been written, and that the client's system has not taken."""
        return sum(one.transport.get_write_buffer_size() for one in self.connections)

    def waiting_bytes(self):
        """As `unsent`, for the test."""
        counted = Future()
        self.loop.call_soon_threadsafe(lambda: counted.set_result(self.unsent()))
        return counted.result(PATIENCE_S)

    async def may_proceed(self):
        while not self.proceed.is_set():
            await asyncio.sleep(0.01)

    def let_time_pass(self, *sent):
        """After this has arrived."""
        wait_until(lambda: self.connections and self.received == sum(map(len, sent)))
        self.loop.let_time_pass()


@pytest.fixture
def app():
    return App()


@pytest.fixture
def serve(app, monkeypatch):
    """Starts a server with limits; returns a function that connects to it."""
    data_received = HttpProtocol.data_received

    def counted(protocol, data):
        data_received(protocol, data)
        app.received += len(data)

    monkeypatch.setattr(HttpProtocol, "data_received", counted)
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", None)
    with contextlib.ExitStack() as stack:

        def start(**limits):
            limit_connections(dataclasses.replace(OPTIONS, **LIMITS | limits))
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
            app.connections = server.server_state.connections
            thread = threading.Thread(target=app.loop.run_until_complete, args=[server.serve([listener])])
            thread.start()
            stack.callback(app.loop.close)
            stack.callback(thread.join)
            stack.callback(app.proceed.set)
            stack.callback(setattr, server, "should_exit", True)

            def connect():
                client = stack.enter_context(socket.create_connection(listener.getsockname()))
                client.settimeout(PATIENCE_S)
                return client

            return connect

        yield start


def all_of(client):
    """What the server sends until it closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: client.recv(2**16), b""))
    return b""


def refusal(client):
    """Status and error code; the connection is closed."""
    status, error = status_and_error(client)
    return status, error["code"]


def status_and_error(client):
    """Status and error of a response after which the connection is closed."""
    head, _, body = all_of(client).partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    error = json.loads(body)["error"]
    assert headers[b"connection"] == b"close"
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"x-request-id"].decode() == error["request_id"]
    return int(head.split()[1]), error


def ok(client, request=REQUEST):
    client.sendall(request)
    answer = b""
    while not answer.endswith(b"xx"):
        answer += client.recv(2**16) or pytest.fail(f"closed after {answer!r}")
    return answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n", REQUEST[:-1], b"GET /hold"]
)
def test_a_request_that_does_not_arrive_in_time_is_refused(serve, app, sent):
    client = serve()()
    client.sendall(sent)
    app.let_time_pass(sent)
    assert refusal(client) == (408, "request_timeout")
    if sent == REQUEST[:-1]:
        assert app.ended.acquire(timeout=PATIENCE_S)
        assert app.disconnected == ["/"]


@pytest.mark.parametrize("sent", [REQUEST[:20], REQUEST[:-1]])
def test_a_request_that_does_not_arrive_before_the_server_ends_is_refused(serve, app, sent):
    client = serve()()
    client.sendall(sent)
    wait_until(lambda: app.received == len(sent))
    for connection in list(app.connections):
        connection._limits.fail()
    assert refusal(client) == (503, "not_ready")


def test_so_is_one_that_follows_others_on_its_connection(serve, app):
    client = serve()()
    assert ok(client)
    assert ok(client)
    client.sendall(REQUEST[:20])
    app.let_time_pass(REQUEST, REQUEST, REQUEST[:20])
    assert refusal(client) == (408, "request_timeout")


def test_a_request_may_take_longer_than_its_headers(serve, app):
    client = serve()()
    client.sendall(hold := REQUEST.replace(b"/", b"/hold", 1))
    app.let_time_pass(hold)
    app.proceed.set()
    assert ok(client, b"")


def test_an_idle_connection_is_closed(serve, app):
    client = serve()()
    assert ok(client)
    app.let_time_pass(REQUEST)
    assert all_of(client) == b""


def test_the_rest_of_a_body_that_was_refused_must_arrive_in_time_too(serve, app):
    """It is answered before its body is read, as without a key."""
    client = serve()()
    assert ok(client, EARLY)
    app.let_time_pass(EARLY)
    assert refusal(client) == (408, "request_timeout")


def test_a_connection_is_kept_after_the_rest_of_a_body_that_was_refused(serve, app):
    client = serve()()
    for _ in range(2):
        assert ok(client, EARLY)
        client.sendall(b"y")
        assert ok(client, REQUEST)
    assert ok(client, EARLY)
    client.sendall(b"y")
    app.let_time_pass(*[EARLY, b"y", REQUEST] * 2, EARLY, b"y")
    assert all_of(client) == b""


def test_the_rest_of_a_body_that_was_refused_does_not_count_as_headers(serve):
    """An upload with a wrong id got 431 instead of 422, where its last piece was larger than headers may be."""
    body = b"y" * (3 * MAX_HEADER_BYTES)
    client = serve()()
    for _ in range(5):
        assert ok(client, b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        client.sendall(body)
    assert ok(client)


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("connection", [b"Upgrade", b"Upgrade, HTTP2-Settings", b"close, Upgrade"])
def test_a_request_that_offers_another_protocol_keeps_its_body(serve, app, protocol, connection):
    """It is served as HTTP/1.1. The JDK's HTTP client offers h2c with its first request."""
    client = serve()()
    offer = b"\r\nConnection: %s\r\nUpgrade: %s\r\nHTTP2-Settings: AAEAAEAA\r\n\r\n" % (connection, protocol)
    assert ok(client, REQUEST.replace(b"\r\n\r\n", offer))
    assert app.bodies == [b"body"]
    assert b"close" in connection or ok(client)


HOLD = REQUEST.replace(b"/", b"/hold", 1)


@pytest.mark.parametrize("requests", [1, 3])
def test_a_client_that_has_closed_its_direction_gets_its_responses(serve, app, requests):
    client = serve()()
    client.sendall(REQUEST * requests)
    client.shutdown(socket.SHUT_WR)
    answer = all_of(client)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == requests
    assert answer.endswith(b"\r\n\r\nxx")
    assert app.bodies == [b"body"] * requests


def test_it_also_waits_for_a_slow_response_of_which_interim_responses_may_come_before(serve, app):
    client = serve()()
    client.sendall(HOLD)
    client.shutdown(socket.SHUT_WR)
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    seen = b""
    while len(seen) < 2 * len(interim):
        seen += client.recv(2**16) or pytest.fail(f"closed after {seen!r}")
    app.proceed.set()
    answer = (seen + all_of(client)).replace(interim, b"")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nxx")


def test_none_comes_within_a_response_that_another_request_waits_behind(serve, app):
    client = serve()()
    client.sendall(REQUEST.replace(b"/", b"/halves", 1) + REQUEST)
    client.shutdown(socket.SHUT_WR)
    answer = client.recv(2**16)
    while not answer.endswith(b"x"):
        answer += client.recv(2**16)
    (connection,) = app.connections
    wait_until(lambda: connection._probe_timer)
    first = connection._probe_timer
    wait_until(lambda: connection._probe_timer is not first)
    app.proceed.set()
    _, _, rest = (answer + all_of(client)).partition(b"\r\n\r\n")
    assert rest.startswith(b"xxHTTP/1.1 ")


@pytest.mark.parametrize("request_", [HOLD, HOLD.replace(b"HTTP/1.1", b"HTTP/1.0"), HOLD + REQUEST], ids=str)
def test_a_client_that_has_left_is_noticed_while_its_request_runs(serve, app, request_):
    client = serve()()
    client.sendall(request_)
    assert app.begun.acquire(timeout=PATIENCE_S)
    client.close()
    wait_until(lambda: not app.connections)
    assert not app.proceed.is_set()


@pytest.mark.parametrize("behind", [b"", REQUEST])
def test_an_app_receives_that_the_client_has_left_also_if_another_request_waits(serve, app, behind):
    client = serve()()
    client.sendall(REQUEST.replace(b"/", b"/receive", 1) + behind)
    assert app.begun.acquire(timeout=PATIENCE_S)
    client.close()
    assert app.ended.acquire(timeout=PATIENCE_S)
    assert app.disconnected == [("/receive", "http.disconnect")]


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", REQUEST[:-1]])
def test_a_client_that_closes_its_direction_within_a_request_is_disconnected(serve, app, sent):
    client = serve()()
    client.sendall(sent)
    client.shutdown(socket.SHUT_WR)
    assert all_of(client) == b""
    wait_until(lambda: not app.connections)


WITHOUT_HOST = REQUEST.replace(b"Host: x\r\n", b"")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (WITHOUT_HOST, 400),
        (REQUEST.replace(b"Host: x\r\n", b"Host: x\r\nHost: x\r\n"), 400),
        (REQUEST.replace(b"Host: x\r\n", b"Host: x\r\nhost: y\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"), 400),
        (WITHOUT_HOST.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"\r\n", b"\r\nHost: x\r\nHost: x\r\n", 1), 400),
        (WITHOUT_HOST.replace(b"HTTP/1.1", b"HTTP/1.0"), 200),
        (REQUEST.replace(b"Host: x", b"Host:"), 200),
    ],
)
def test_a_request_has_one_host_header(serve, app, sent, status):
    client = serve()()
    client.sendall(sent)
    if status == 400:
        status, error = status_and_error(client)
        assert (status, error["code"]) == (400, "malformed_request")
        assert "Host header" in error["message"]
        assert app.bodies == []
    else:
        client.shutdown(socket.SHUT_WR)
        assert all_of(client).startswith(b"HTTP/1.1 200")


def test_a_request_for_a_tunnel_is_refused(serve):
    client = serve()()
    client.sendall(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
    status, error = status_and_error(client)
    assert (status, error["code"]) == (400, "malformed_request")
    assert error["message"] == "CONNECT: this server is not a proxy"


@pytest.mark.parametrize(
    "sent",
    [
        b"BAD / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"\x16\x03\x01",
    ],
)
def test_what_is_not_http_gets_the_one_error_body(serve, sent):
    client = serve()()
    client.sendall(sent)
    assert refusal(client) == (400, "malformed_request")


LINES = b"X-A: yy\r\n" * 4096
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4"


@pytest.mark.parametrize("behind", [b"", REQUEST], ids=["first", "pipelined"])
@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET / HTTP/1.1\r\n", LINES),
        (b"GET / HTTP/1.1\r\nX-A: ", b"y" * 2**15),
        (b"GET /", b"y" * 2**15),
        (b"", b"\r\n" * 2**14),
        (CHUNKED + b"\r\nbody\r\n0\r\n", LINES),
        (CHUNKED + b"\r\nbody\r\n0\r\nX-A: ", b"y" * 2**15),
        (CHUNKED + b";", b"y" * 2**15),
        (CHUNKED + b"\r\nbody\r\n", (b"1;" + b"y" * 1000 + b"\r\n \r\n") * 32),
    ],
    ids=["headers", "header", "path", "blank", "trailers", "trailer", "extension", "extensions"],
)
def test_all_of_a_request_but_its_body_has_a_limit(serve, app, monkeypatch, behind, begin, piece):
    refused = []
    monkeypatch.setattr(HttpProtocol, "_refuse", lambda one, error: (refused.append(error.code), one.transport.abort()))
    client = serve()()
    client.sendall(behind.replace(b"/", b"/hold", 1) + begin)
    if behind:
        assert app.begun.acquire(timeout=PATIENCE_S)
    with contextlib.suppress(OSError):
        client.sendall(piece)
        app.proceed.set()
        for _ in range(1000):
            client.sendall(piece)
    all_of(client)
    assert refused == ["headers_too_large"]
    assert app.received <= 16 * MAX_HEADER_BYTES


def test_what_follows_a_request_is_not_parsed_before_its_response(serve, app):
    client = serve()()
    client.sendall(REQUEST.replace(b"/", b"/hold", 1))
    assert app.begun.acquire(timeout=PATIENCE_S)
    sent = threading.Thread(target=client.sendall, args=[REQUEST * 10_000 + REQUEST[:20]])
    sent.start()
    (connection,) = app.connections
    wait_until(lambda: connection._unparsed)
    assert len(connection.pipeline) <= 2**10 / len(REQUEST)
    app.loop.let_time_pass()
    app.proceed.set()
    answers = b""
    while answers.count(b"HTTP/1.1 200") < 10_001:
        answers += client.recv(2**16) or pytest.fail("closed")
    sent.join()
    wait_until(lambda: connection._awaits is RequestPart.HEADERS)
    app.loop.let_time_pass()
    assert refusal(client) == (408, "request_timeout")


def test_a_trailer_is_no_header(serve, app):
    client = serve()()
    assert ok(client, CHUNKED + b"\r\nbody\r\n0\r\nX-Request-ID: a\r\n\r\n")
    assert [name for name, _ in app.headers[0]] == [b"host", b"transfer-encoding"]
    assert app.bodies == [b"body"]


def test_a_body_may_come_in_small_chunks(serve, app):
    client = serve()()
    assert ok(client, CHUNKED + b"\r\nbody\r\n" + b"1\r\ny\r\n" * 50_000 + b"0\r\n\r\n")
    assert app.bodies == [b"body" + b"y" * 50_000]
    assert [connection._unparsed.obj for connection in app.connections] == [b""], "what was parsed is kept"


def test_requests_whose_bodies_do_not_come_do_not_keep_others_out(serve, app):
    connect = serve(max_connections=10)
    silent = [connect() for _ in range(10)]
    for client in silent:
        client.sendall(REQUEST[:-1])
        assert app.begun.acquire(timeout=PATIENCE_S)
    assert ok(connect())
    assert refusal(silent[0]) == (503, "not_ready")
    assert ok(silent[-1], REQUEST[-1:])


def test_slow_connections_do_not_keep_others_out(serve):
    """A hundred of them, at a server that holds ten."""
    connect = serve(max_connections=10)
    slow = [connect() for _ in range(100)]
    for client in slow:
        with contextlib.suppress(OSError):
            client.sendall(b"POST / HTTP/1.1\r\nHost:")
    clients = [connect() for _ in range(5)]
    assert all(ok(client) for client in clients)
    assert {all_of(client)[:12] for client in slow[:50]} <= {b"HTTP/1.1 503", b""}
    assert all(ok(client) for client in clients)


def test_a_connection_too_many_is_refused_if_all_others_have_requests(serve, app):
    connect = serve(max_connections=2)
    busy = [connect() for _ in range(2)]
    for client in busy:
        client.sendall(REQUEST.replace(b"/", b"/hold", 1))
        assert app.begun.acquire(timeout=PATIENCE_S)
    assert refusal(connect()) == (503, "not_ready")
    app.proceed.set()
    assert all(ok(client, b"") for client in busy)
    assert ok(connect())


def test_a_client_that_does_not_read_is_disconnected(serve, app):
    client = serve()()
    client.sendall(REQUEST.replace(b"/", b"/large", 1))
    wait_until(lambda: any(one._write_timer for one in app.connections))
    app.loop.let_time_pass()
    assert app.ended.acquire(timeout=PATIENCE_S)
    assert len(all_of(client)) < 100 * 2**20


def test_also_if_only_little_waits_to_be_sent(serve, app):
    """By default, asyncio reports it from 64 KiB on; closing a connection waits without a limit."""
    client = serve()()
    client.sendall(REQUEST.replace(b"/", b"/filled", 1))
    wait_until(app.waiting_bytes)
    wait_until(lambda: not app.connections or app.loop.let_time_pass())


def test_a_client_that_reads_slowly_gets_its_response(serve, app):
    client = serve()()
    client.sendall(REQUEST.replace(b"/", b"/whole", 1))
    wait_until(app.waiting_bytes)
    begun = client.recv(2**16)
    left = begun.index(b"\r\n\r\n") + 4 + LARGE - len(begun)
    while left:
        before = app.waiting_bytes()
        while app.waiting_bytes() > max(0, before - PACE_BYTES):
            left -= len(client.recv(2**16)) or pytest.fail("disconnected")
        app.loop.let_time_pass()
        left -= len(client.recv(2**22)) or pytest.fail("disconnected")


@pytest.mark.parametrize(("soft", "hard", "allowed"), [(256, 4096, 2256), (256, 1024, 1024)])
def test_the_process_may_open_as_many_files_as_its_connections_need(soft, hard, allowed):
    code = (
        "import resource; from gateway_options import OPTIONS; "
        "from gliner_bento.gateway.http_protocol import limit_connections; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); limit_connections(OPTIONS); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert ended.stdout == f"({allowed}, {hard})\n"

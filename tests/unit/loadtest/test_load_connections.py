"""The load generator's connections, against servers that answer byte by byte."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
import uvloop

from gliner_bento.http.connections import Connections

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx"


def exchange(answers: list[bytes], sent: int, **limits):
    """Responses to `sent` concurrent requests; the server has one answer for each, and closes after an empty one.
    Also the number of connections, and the requests."""
    requests = []
    left = iter(answers)

    async def serve(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                requests.append(head + await reader.readexactly(size))
                answer = next(left)
                for byte in answer:
                    writer.write(bytes([byte]))
                await writer.drain()
                if not answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def scene():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        connections = Connections(f"http://{host}:{port}/v1/extract?a=b", {"X-Api-Key": "k"}, **limits)
        got = await asyncio.gather(*(connections.send(b"body") for _ in range(sent)))
        connections.close()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)
        return got, connections.opened, requests

    return asyncio.run(scene())


def test_a_request_has_its_headers_and_body():
    _, _, (request,) = exchange([OK], 1)
    line, *_ = request.split(b"\r\n")
    assert line == b"POST /v1/extract?a=b HTTP/1.1"
    assert b"\r\nX-Api-Key: k\r\nContent-Length: 4\r\n\r\nbody" in request


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_unix_socket_has_paths_and_a_cancelled_request_closes_its_connection(new_loop, tmp_path):
    lines, left = [], []

    async def serve(reader, writer):
        while head := await reader.read(1000):
            lines.append(head.split(b"\r\n")[0])
            if b"/never" not in head:
                writer.write(OK)
        writer.close()
        left.append(await writer.wait_closed())

    async def scene():
        async with await asyncio.start_unix_server(serve, tmp_path / "socket"):
            connections = Connections("http://localhost/replica", {}, socket=str(tmp_path / "socket"))
            assert (await connections.send(b"body", "/extract")).content == b"xx"
            waiting = connections.send(b"body", "/never")
            while len(lines) < 2:
                await asyncio.sleep(0.001)
            waiting.cancel()
            while not left:
                await asyncio.sleep(0.001)
            assert (await connections.send(b"body", "/extract")).status == "200"
            connections.close()
            while len(left) < 2:
                await asyncio.sleep(0.001)
        assert lines == [b"POST /replica/%s HTTP/1.1" % path for path in (b"extract", b"never", b"extract")]
        assert connections.opened == 2

    with closing(new_loop()) as loop:
        loop.run_until_complete(scene())


def test_requests_beyond_the_limit_wait_for_a_connection():
    responses, opened, _ = exchange([OK] * 9, 9, limit=2)
    assert [response.status for response in responses] == ["200"] * 9
    assert opened == 2


@pytest.mark.parametrize(
    ("answer", "status", "content"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, "200", b"xx"),
        (b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "503", b"abc"),
        (b"HTTP/1.1 429 X\r\nretry-after: 3\r\nContent-Length: 0\r\n\r\n", "429", b""),
        (b"no HTTP\r\n\r\n", "HttpParserError", b""),
        (b"", "ConnectionResetError", b""),
    ],
)
def test_a_response_is_its_status_and_body_or_the_name_of_an_error(answer, status, content):
    (response,), _, _ = exchange([answer], 1)
    assert (response.status.replace("InvalidStatus", "Parser"), response.content) == (status, content)
    assert response.retry_after == (status == "429")


def test_a_connection_that_is_not_kept_is_replaced():
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    responses, opened, _ = exchange([closing, closing, OK], 3, limit=1)
    assert [response.status for response in responses] == ["200"] * 3
    assert opened == 3


def test_closing_answers_requests_that_wait_and_those_whose_connection_opens():
    async def scene():
        connections = Connections("http://127.0.0.1:9", {}, limit=1)
        opens, waits = connections.send(b"body"), connections.send(b"body")
        connections.close()
        return await asyncio.gather(opens, waits)

    assert [response.status for response in asyncio.run(scene())] == ["ConnectionAbortedError"] * 2


def test_a_request_that_is_cancelled_while_it_waits_is_not_sent():
    heads, answer, ended = [], asyncio.Event(), asyncio.Event()

    async def serve(reader, writer):
        while head := await reader.read(1000):
            heads.append(head)
            await answer.wait()
            writer.write(OK)
        writer.close()
        ended.set()

    async def scene():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            connections = Connections(f"http://{host}:{port}", {}, limit=1)
            first, cancelled, last = (connections.send(name) for name in (b"first", b"cancelled", b"last"))
            cancelled.cancel()
            answer.set()
            await asyncio.gather(first, last)
            connections.close()
            await ended.wait()
            return connections.opened

    assert asyncio.run(scene()) == 1
    assert [head.rpartition(b"\r\n\r\n")[2] for head in heads] == [b"first", b"last"]

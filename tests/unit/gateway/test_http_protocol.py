"""What is no HTTP is answered with the one error body too."""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from functools import partial

import pytest
from on_a_socket import address_of, in_this_loop

from gliner_bento.gateway.http_protocol import HttpProtocol, ProtocolLimits
from gliner_bento.http.disconnect import CancelOnDisconnect

HEAD = b"POST /v1/extract HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def exchange(app, sent: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer."""

    async def scene() -> bytes:
        async with in_this_loop(app, http=HttpProtocol) as server:
            reader, writer = await asyncio.open_connection(*address_of(server))
            writer.write(sent)
            answer = await reader.read()  # to the end: the connection is closed
            writer.close()
            return answer

    head, _, body = asyncio.run(scene()).partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01",
        HEAD.replace(b"POST", b"B@D") + b"\r\n",
        HEAD + b"Content-Length: x\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_bytes_that_are_no_http_get_the_one_error_body(app, sent: bytes):
    head, body = exchange(app, sent)
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    error = json.loads(body)["error"]
    assert (error["code"], error["param"]) == ("malformed_request", None)
    assert f"x-request-id: {error['request_id']}".encode() in head.lower().splitlines()
    assert f"content-length: {len(body)}".encode() in head.lower().splitlines()


def test_a_request_for_a_websocket_is_answered_like_any_other(app):
    upgrade = b"Connection: close, upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}"
    head, body = exchange(app, HEAD + upgrade)
    assert head.startswith(b"HTTP/1.1 422 ")
    assert json.loads(body)["error"]["code"] == "invalid_field"


def test_a_pipelined_request_keeps_nothing_of_the_one_before_it():
    """Its context would hold what that one has set, and so on to the first."""
    number, seen = ContextVar("number", default=0), []

    async def app(scope, receive, send):
        seen.append(number.get())
        number.set(len(seen))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    # Beyond what is parsed in one go, so that the rest is parsed when a response has been sent.
    get = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2000 + b"\r\n"
    exchange(app, 4 * (get + b"\r\n") + get + b"Connection: close\r\n\r\n")
    assert seen == [0] * 5


def test_a_connection_is_closed_when_the_server_ends_right_after_a_response(app):
    """The response is written, its cycle has not ended: a client that goes on sending would keep the server up."""

    class EndsAfterResponse(HttpProtocol):
        def _write(self, *response) -> None:
            super()._write(*response)
            self.shutdown()

    async def scene() -> bytes:
        limits = ProtocolLimits(app.options, app.early)
        async with in_this_loop(app, http=partial(EndsAfterResponse, limits=limits)) as server:
            reader, writer = await asyncio.open_connection(*address_of(server))
            body = json.dumps({"text": "Ada", "labels": ["person"]}).encode()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = await asyncio.wait_for(reader.read(), 60)  # to the end
            writer.close()
            return answer

    assert asyncio.run(scene()).startswith(b"HTTP/1.1 200 ")


def test_a_connection_that_was_being_made_when_the_server_ended_is_closed_too(app):
    """uvicorn asks only those to end that exist; a TLS handshake takes a while."""

    async def scene() -> bytes:
        limits, ending = ProtocolLimits(app.options, app.early), []

        def protocol(**arguments) -> HttpProtocol:
            limits.end()
            ending.append(asyncio.ensure_future(server.shutdown()))  # its first step comes before `connection_made`
            return HttpProtocol(**arguments, limits=limits)

        async with in_this_loop(app, http=protocol) as server:
            reader, writer = await asyncio.open_connection(*address_of(server))
            answer = await asyncio.wait_for(reader.read(), 60)  # to the end
            writer.close()
            await ending[0]
            return answer

    assert asyncio.run(scene()) == b""


def test_a_client_that_leaves_after_a_large_body_is_noticed():
    """uvicorn stops reading when a large part of a body arrives, also if it is the last one."""
    begun, rest = HEAD + b"Content-Length: 200001\r\n\r\na", b"a" * 200_000

    class InTwoParts(HttpProtocol):
        rest = b""

        def data_received(self, data: bytes) -> None:
            if data == begun:
                super().data_received(data)
                return
            self.rest += data
            if self.rest == rest:
                super().data_received(rest)

    async def scene() -> None:
        reading, read, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            while (await receive())["more_body"]:
                reading.set()
            read.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with in_this_loop(CancelOnDisconnect(app), http=InTwoParts, timeout_graceful_shutdown=1) as server:
            _, writer = await asyncio.open_connection(*address_of(server))
            writer.write(begun)
            await asyncio.wait_for(reading.wait(), 60)
            writer.write(rest)
            await asyncio.wait_for(read.wait(), 60)
            writer.close()
            await asyncio.wait_for(cancelled.wait(), 60)

    asyncio.run(scene())

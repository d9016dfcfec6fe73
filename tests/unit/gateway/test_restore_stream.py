"""`/v1/restore/stream`: chunks are restored while the body is still sent."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from on_a_socket import address_of, in_this_loop

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.http_protocol import ProtocolLimits
from gliner_bento.privacy.sealing import Sealer

KEY = OPTIONS.redaction_key.get_secret_value().encode()
LINES = {"Content-Type": "application/x-ndjson"}
HEAD = (
    b"POST /v1/restore/stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture
def mapping():
    return Sealer([KEY], max_bytes=5000, lifetime_s=3600).seal("", {"[PERSON_1]": 'Ada "Ng"', "[CITY_1]": "Århus"})


@pytest.fixture
def stream(client):
    """Sends lines, and returns the lines of the answer."""

    def send(*lines, status=200):
        body = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        response = asyncio.run(client.post("/v1/restore/stream", content=body, headers=LINES))
        assert response.status_code == status, response.text
        return [json.loads(line) for line in response.text.splitlines()]

    return send


def test_chunks_are_restored_and_the_last_line_has_the_counts(stream, mapping):
    *lines, end = stream(
        {"mapping": mapping, "request_id": "mine"},
        {"text": "Dear [PER"},
        "",
        {"text": "SON_1] of "},
        {"text": "[CITY_1] [CITY_2] [PERS"},
    )
    assert [line["text"] for line in lines] == ["Dear ", 'Ada "Ng" of ', "Århus [CITY_2] ", "[PERS"]
    assert end == {"restored": 2, "ambiguous": 0, "unknown": ["[CITY_2]"], "request_id": "mine"}


def test_originals_of_a_stream_have_a_maximum_length(stream):
    sealed = Sealer([KEY], max_bytes=5000, lifetime_s=3600).seal("", {"[A_1]": "x" * 120})
    first, *_, last = stream({"mapping": sealed, "text": "[A_1] "}, *[{"text": "[A_1] "}] * 9)
    assert first == {"text": "x" * 120 + " "}
    assert (last["error"]["code"], last["error"]["param"]) == ("too_large", "text")


def test_chunks_of_json_stay_json(stream, mapping):
    first = {"mapping": mapping, "format": "json", "text": '{"to": "[PERSON'}
    *lines, _ = stream(first, {"text": '_1]"}'})
    assert json.loads("".join(line["text"] for line in lines)) == {"to": 'Ada "Ng"'}


def test_a_stream_may_be_empty(stream):
    assert [{**line, "request_id": ""} for line in stream()] == [
        {"restored": 0, "ambiguous": 0, "unknown": [], "request_id": ""}
    ]


@pytest.mark.parametrize(
    ("first", "status", "param"),
    [
        ("{", 400, None),
        ("[]", 422, None),
        ({"mapping": "gAAAA"}, 422, "mapping"),
        ({"texts": ["a"]}, 422, "texts"),
        ({"format": "auto"}, 422, "format"),
        ({"text": "a" * 101}, 413, "text"),
        ({"text": "a" * 1001}, 413, None),  # max_body_bytes
    ],
)
def test_an_error_in_the_first_line_is_the_response(stream, first, status, param):
    (error,) = stream(first, {"text": "Dear"}, status=status)
    assert error["error"]["param"] == param


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("{", "malformed_request", "line 3: the body is not valid JSON"),
        ({"mapping": "x", "text": ""}, "invalid_field", "line 3: mapping"),
        ({"text": "a" * 101}, "too_large", "text: 101 characters"),
    ],
)
def test_a_later_error_is_the_last_line(stream, line, code, message):
    chunk, error = stream({}, {"text": "Dear "}, line, {"text": "no more"})
    assert chunk == {"text": "Dear "}
    assert error["error"]["code"] == code
    assert message in error["error"]["message"]


class Loop(asyncio.SelectorEventLoop):
    """An hour passes when the test says so."""

    ahead_s = 0.0

    def time(self):
        return super().time() + self.ahead_s


@asynccontextmanager
async def connected(options) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, ProtocolLimits]]:
    """A connection to a server with our limits on connections."""
    app = GatewayApp(options)
    app.bind(MemoryReplica())
    limits = ProtocolLimits(options, app.early)
    async with in_this_loop(app, http=limits.protocol) as server:
        reader, writer = await asyncio.open_connection(*address_of(server))
        try:
            yield reader, writer, limits
        finally:
            writer.close()


@pytest.mark.parametrize("begun", ["", '{"tex'])
def test_a_stream_that_the_server_ends_has_an_error_as_its_last_line(mapping, begun):
    async def scene():
        async with connected(OPTIONS) as (reader, writer, limits):
            line = json.dumps({"mapping": mapping, "text": "Dear [PERSON_1], [PER"}) + "\n" + begun
            writer.write(HEAD + b"%x\r\n%s\r\n" % (len(line), line.encode()))
            await reader.readuntil(b'{"text":"Dear Ada \\"Ng\\", "}\n')
            await asyncio.to_thread(limits.fail)
            return await reader.read()

    assert b'{"error":{"code":"not_ready","message":"the server ended before' in asyncio.run(scene())


def test_an_answer_comes_before_the_next_chunk_however_long_the_stream_is(mapping):
    """The time for a body does not add up, as long as it goes on."""
    loop = Loop()

    async def scene():
        async with connected(dataclasses.replace(OPTIONS, body_timeout_s=3600.0)) as (reader, writer, _):

            async def send(line):
                content = json.dumps(line).encode() + b"\n"
                writer.write(b"%x\r\n%s\r\n" % (len(content), content))
                await writer.drain()

            writer.write(HEAD)
            await send({"mapping": mapping, "text": "Dear [PER"})
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert b'{"text":"Dear "}' in await reader.readuntil(b"\n\r\n")
            for _ in range(3):
                loop.ahead_s += 2000.0
                await send({"text": "SON_1], [PER"})
                assert b"Ada" in await reader.readuntil(b"\n\r\n")
            writer.write(b"0\r\n\r\n")
            assert b'"restored":3' in await reader.readuntil(b"0\r\n\r\n")

    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()


def test_a_stream_that_does_not_go_on_is_closed(mapping):
    loop = Loop()

    async def scene():
        async with connected(dataclasses.replace(OPTIONS, body_timeout_s=3600.0)) as (reader, writer, _):
            content = json.dumps({"mapping": mapping, "text": "Dear [PER"}).encode() + b"\n"
            writer.write(HEAD + b"%x\r\n%s\r\n" % (len(content), content))
            await reader.readuntil(b"\n\r\n")
            loop.ahead_s += 4000.0
            assert b"Ada" not in await reader.read()

    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()

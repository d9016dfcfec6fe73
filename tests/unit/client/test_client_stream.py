"""What the clients make of an answer that comes line by line, in pieces that end anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict

import httpx
import pytest

from gliner_bento.client import AsyncClient, Client
from gliner_bento.errors import DeadlineExceeded, ErrorBody, InternalError, InvalidField, NotReady, QueueFull
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.extraction import Entity, StreamedEnd, StreamedEntity

KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])
ENTITIES = [
    Entity(start=0, end=3, text="Ada", label="person", score=0.9),
    Entity(start=8, end=19, text="S\u00e3o\u2028Pau\u0085lo", label="city \U0001f3d9", score=0.8),
    Entity(start=25, end=28, text="a\nb", label='"', score=0.7),
]
END = StreamedEnd(
    relations=[],
    truncated=False,
    truncated_at=None,
    warnings=[],
    usage=Usage(words=9, tokens=12, windows=2, label_groups=1, relation_groups=0),
    model="echo",
    adapter_id=None,
    request_id="r",
)


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces of `size` bytes; `closed` by its reader. sent: pieces that were read."""

    def __init__(self, content: bytes, size: int) -> None:
        self._pieces = [content[start : start + size] for start in range(0, len(content), size)]
        self.sent = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.sent += 1
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def content_of(*lines: StreamedEntity | StreamedEnd | ErrorBody) -> bytes:
    return b"".join(f"{json.dumps(asdict(line))}\n".encode() for line in lines)


def read(kind, response, received, most=None, **options) -> httpx.Request:
    """Stream with a client of this kind into `received`, at most `most`; the request as it arrived."""
    requests = []

    def answer(request):
        requests.append(request)
        return response

    def take(one):
        received.append(one)
        return len(received) == most

    transport = httpx.MockTransport(answer)
    if kind is Client:
        with Client("http://test") as client:
            client._http = httpx.Client(transport=transport, base_url="http://test")
            for one in client.extract_stream("Ada", ["person"], **options):
                if take(one):
                    break
    else:

        async def scene():
            async with AsyncClient("http://test") as client:
                client._http = httpx.AsyncClient(transport=transport, base_url="http://test")
                async for one in client.extract_stream("Ada", ["person"], **options):
                    if take(one):
                        break

        asyncio.run(scene())
    return requests[0]


@KINDS
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_entities_come_one_by_one_and_then_the_rest(kind, size):
    pieces = Pieces(content_of(*(StreamedEntity(entity=entity) for entity in ENTITIES), END), size)
    received = []
    request = read(kind, httpx.Response(200, stream=pieces), received, window_words=64)
    assert received == [*ENTITIES, END]
    assert pieces.closed
    assert (request.method, request.url.path) == ("POST", "/v1/extract/stream")
    assert request.content == b'{"text":"Ada","labels":["person"],"window_words":64}'


@KINDS
def test_an_entity_is_yielded_before_the_next_has_arrived(kind):
    lines = [content_of(StreamedEntity(entity=entity)) for entity in ENTITIES]
    pieces = Pieces(b"".join(lines), 1)
    received = []
    read(kind, httpx.Response(200, stream=pieces), received, most=1)
    assert received == ENTITIES[:1]
    assert pieces.sent <= len(lines[0]) + 1


@KINDS
def test_who_ends_the_iteration_ends_the_connection(kind):
    pieces = Pieces(content_of(*[StreamedEntity(entity=ENTITIES[0])] * 1000), 100)
    read(kind, httpx.Response(200, stream=pieces), [], most=2)
    assert pieces.closed
    assert pieces.sent < 1000


@KINDS
@pytest.mark.parametrize("kind_of_error", [DeadlineExceeded, NotReady, InvalidField])
def test_an_error_in_the_last_line_is_raised_after_the_entities(kind, kind_of_error):
    error = ErrorBody(error=kind_of_error("it went wrong", param="text").detail("r"))
    pieces, received = Pieces(content_of(StreamedEntity(entity=ENTITIES[0]), error), 5), []
    with pytest.raises(kind_of_error, match="it went wrong") as caught:
        read(kind, httpx.Response(200, stream=pieces), received)
    assert received == ENTITIES[:1]
    assert caught.value.param == "text"
    assert pieces.closed


@KINDS
@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (429, content_of(ErrorBody(error=QueueFull("full").detail())), QueueFull),
        (422, content_of(ErrorBody(error=InvalidField("labels: wrong", param="labels").detail())), InvalidField),
        (502, b"<html>a proxy speaks</html>", NotReady),
        (500, b"", InternalError),
    ],
)
def test_an_error_in_place_of_lines_is_raised(kind, status, content, error):
    received = []
    with pytest.raises(error):
        read(kind, httpx.Response(status, stream=Pieces(content, 3)), received)
    assert received == []

"""Bodies of JSON lines (NDJSON): reads those of a request while they arrive, and sends those of a response."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from gliner_bento.errors import Aborted, ErrorBody, GLiNERBentoError
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.edge import ENDED
from gliner_bento.gateway.json_body import readable
from gliner_bento.gateway.json_parts import json_parts
from gliner_bento.gateway.media import NDJSON
from gliner_bento.gateway.validation import from_model
from gliner_bento.http.pieces import PiecesResponse, coalesced

_NOT_ASCII = re.compile("[^\\x00-\\x7f]+")

Line = TypeVar("Line", bound=BaseModel)


class LinesReader:
    """Reads the JSON lines of a request's body. Blank lines are ignored. `number`: of the last line, from 1."""

    def __init__(self, request: Request) -> None:
        self._lines = _lines(request)
        self.number = 0

    async def next(self, model: type[Line]) -> Line | None:
        """The next line; None at the end. Raises `InvalidField` and `MalformedRequest`, which name the line,
        `TooLarge`, `NotReady` if the server ends, and `Aborted` if the client disconnects."""
        try:
            async for line in self._lines:
                self.number += 1
                if line.strip():
                    return model.model_validate_json(readable(line))
        except ValidationError as invalid:
            error = from_model(invalid, model)
            raise type(error)(f"line {self.number}: {error}", param=error.param) from None
        except ClientDisconnect:
            raise Aborted("the body ended before it was complete") from None
        return None


class LinesResponse(PiecesResponse):
    """Sends a JSON line for each value, and for an error. At its end, closes `rest`; if the client has left, this
    aborts what makes the values. first: those that are made already."""

    def __init__(self, context: Context, first: Sequence[Any], rest: AsyncGenerator[Sequence[Any], None]) -> None:
        self._context, self._rest = context, rest
        super().__init__(self._encoded(first), media_type=NDJSON)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            self._context.record.error = Aborted.code
            raise
        finally:
            await self._rest.aclose()

    async def _encoded(self, first: Sequence[Any]) -> AsyncIterator[bytes]:
        async for line in self._values(first):
            async for piece in coalesced(chain(json_parts(line), (b"\n",))):
                yield piece if piece.isascii() else _ascii(piece)

    async def _values(self, first: Sequence[Any]) -> AsyncIterator[Any]:
        try:
            for line in first:
                yield line
            async for lines in self._rest:
                for line in lines:
                    yield line
        except GLiNERBentoError as error:
            self._context.record.error = error.code
            yield ErrorBody(error.detail(self._context.id))


def lines_content(*kinds: type[Any]) -> dict[str, Any]:
    """The OpenAPI `content` of a body whose lines are of one of these types."""
    return {NDJSON: {"schema": {"oneOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]}}}


async def _lines(request: Request) -> AsyncIterator[bytes]:
    """The lines of a body, without their ends, as they arrive. The last may have no end. Raises an error of `ENDED`."""
    line = bytearray()
    async for chunk in request.stream():
        searched = len(line)
        line += chunk
        while (end := line.find(b"\n", searched)) >= 0:
            yield bytes(line[:end])
            del line[: end + 1]
            searched = 0
    for error in request.scope.get(ENDED, ()):
        raise error
    yield bytes(line)


def _ascii(piece: bytes) -> bytes:
    """The same JSON in ASCII, because many clients also split lines at Unicode's other line separators."""
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], piece.decode()).encode()

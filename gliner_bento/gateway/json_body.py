"""Reads the JSON body of a request, for every route."""

from __future__ import annotations

import codecs
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from gliner_bento.surrogates import without_escaped_surrogates

Body = TypeVar("Body", bound=BaseModel)


async def json_body(request: Request, model: type[Body]) -> Body:
    """The validated body; an empty one counts as `{}`. Raises pydantic's `ValidationError`."""
    return model.model_validate_json(await json_content(request) or b"{}")


async def json_content(request: Request) -> bytes:
    """The body without a byte order mark, and with U+FFFD for lone surrogates."""
    return without_escaped_surrogates((await request.body()).removeprefix(codecs.BOM_UTF8))

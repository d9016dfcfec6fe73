"""What kind of body a request says it has."""

from __future__ import annotations

from starlette.datastructures import Headers

JSON = "application/json"
NDJSON = "application/x-ndjson"


def media_type(headers: Headers) -> str:
    """In lower case and without parameters; empty if the request does not say."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Whether a media type is JSON's, or that of something that is written in JSON."""
    return kind == JSON or kind.endswith("+json")

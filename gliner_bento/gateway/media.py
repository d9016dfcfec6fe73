"""Media types of bodies."""

from __future__ import annotations

from collections.abc import Mapping

JSON = "application/json"
NDJSON = "application/x-ndjson"


def media_type(headers: Mapping[str, str]) -> str:
    """The media type of a request's body, in lower case and without parameters; empty if there is none."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Whether a media type is JSON or based on it (`+json`)."""
    return kind == JSON or kind.endswith("+json")

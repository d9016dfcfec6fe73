"""Builds the requests of both clients, and parses the responses. Does no IO."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from gliner_bento.adapter_types import AdapterInfo, AdapterList
from gliner_bento.client.notebook import ExtractAnswer, ExtractBatchAnswer
from gliner_bento.errors import (
    DeadlineExceeded,
    ErrorBody,
    ErrorDetail,
    InternalError,
    InvalidField,
    NotReady,
    from_detail,
)
from gliner_bento.model_types import ListedModel, ListedModels, ModelAction
from gliner_bento.redact_types import RedactResponse, RestoreResponse
from gliner_bento.status_types import AbortResponse, ModelCard, ServerStatus
from gliner_bento.surrogates import without_surrogates
from gliner_bento.tasks.extraction import ExtractBatchResponse, StreamedEnd, StreamedEntity
from gliner_bento.tasks.labels import LabelOptions

Answer = TypeVar("Answer")
Labels = list[str] | Mapping[str, str | LabelOptions]


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[Answer]):
    """One request. parse: parses the content of a successful response, or a line of a streamed one.

    body: sent as JSON. upload: path of an archive or of an adapter's folder, which is sent as the body instead.
    """

    method: str
    path: str
    parse: Callable[[bytes], Answer]
    body: dict[str, Any] | None = None
    query: dict[str, Any] | None = None
    upload: Path | None = None

    def options(self) -> dict[str, Any]:
        """Arguments of httpx's `request` for body and query. An upload is sent by the clients."""
        if self.body is None:
            return {"params": self.query}
        text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        content = without_surrogates(text).encode()
        return {"params": self.query, "content": content, "headers": {"Content-Type": "application/json"}}

    def parse_response(self, response: httpx.Response) -> Answer:
        """The parsed content. Raises the `GLiNERBentoError` of an error response."""
        if response.is_success:
            return self.parse(response.content)
        raise from_detail(_error_detail(response))


def checked_url(url: str) -> str:
    """Raises `InvalidField` for what is not the URL of a server."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidField(f"url: {url!r}: {error}", param="url") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidField(f"url: {url!r} must begin with http:// or https://, as http://localhost:3000", param="url")
    return url


@contextmanager
def without_httpx_errors(url: str) -> Iterator[None]:
    """Raises `DeadlineExceeded` or `NotReady` in place of httpx's errors about a server that does not answer."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise DeadlineExceeded(f"{url}: no answer within the client's timeout_s") from error
    except httpx.TransportError as error:
        raise not_answered(url, error) from error


def not_answered(url: str, error: httpx.TransportError) -> NotReady:
    """The error for a server that cannot be reached, or that ends a connection without an answer."""
    hint = "; is a server running there?" if isinstance(error, httpx.ConnectError) else ""
    return NotReady(f"{url}: {str(error) or type(error).__name__}{hint}")


def checked_text(text: object, param: str) -> str:
    """A text as a request can contain it: U+FFFD for lone surrogates. Raises `InvalidField` if it is not a string."""
    if not isinstance(text, str):
        raise InvalidField(f"{param}: must be a text (str), not {type(text).__name__}", param=param)
    return without_surrogates(text)


def checked_texts(texts: Sequence[str]) -> list[str]:
    """As `checked_text`. Raises `InvalidField` also for one string in place of several."""
    if isinstance(texts, str):
        raise InvalidField("texts: must be several texts, such as a list, not one string", param="texts")
    return [checked_text(text, f"texts.{index}") for index, text in enumerate(texts)]


def extract(text: str, labels: Labels | None, options: dict[str, Any]) -> HttpCall[ExtractAnswer]:
    """`POST /v1/extract`."""
    text = checked_text(text, "text")
    body = {"text": text, **_labels_field(labels), **options}
    return HttpCall("POST", "/v1/extract", lambda content: _parser(ExtractAnswer)(content).with_text(text), body)


def extract_stream(text: str, labels: Labels | None, options: dict[str, Any]) -> HttpCall[StreamedEntity | StreamedEnd]:
    """`POST /v1/extract/stream`; `HttpCall.parse` parses one line."""
    body = {"text": checked_text(text, "text"), "labels": labels, **options}
    return HttpCall("POST", "/v1/extract/stream", _parse_line, body)


def extract_batch(texts: Sequence[str], labels: Labels | None, options: dict[str, Any]) -> HttpCall[ExtractBatchAnswer]:
    """`POST /v1/extract/batch`, with options that all texts share."""
    texts = checked_texts(texts)
    body = {"texts": texts, **_labels_field(labels), **options}
    parse = _parser(ExtractBatchAnswer)
    return HttpCall("POST", "/v1/extract/batch", lambda content: parse(content).with_texts(texts), body)


def extract_items(
    texts: Sequence[str | Mapping[str, Any]], labels: Labels | None, options: dict[str, Any]
) -> HttpCall[ExtractBatchResponse]:
    """`POST /v1/extract/batch`. texts: strings, or mappings with a `text` and options for it."""
    items = [{"text": text} if isinstance(text, str) else dict(text) for text in texts]
    body = {"items": items, **_labels_field(labels), **options}
    return HttpCall("POST", "/v1/extract/batch", _parser(ExtractBatchResponse), body)


def _labels_field(labels: Labels | None) -> dict[str, Any]:
    return {} if labels is None else {"labels": labels}


def redact(texts: Sequence[str], options: dict[str, Any]) -> HttpCall[RedactResponse]:
    """`POST /v1/redact`, for the texts of one conversation."""
    return HttpCall("POST", "/v1/redact", _parser(RedactResponse), {"texts": checked_texts(texts), **options})


def restore(text: str, mapping: str, options: dict[str, Any]) -> HttpCall[RestoreResponse]:
    """`POST /v1/restore`."""
    body = {"text": checked_text(text, "text"), "mapping": mapping, **options}
    return HttpCall("POST", "/v1/restore", _parser(RestoreResponse), body)


def abort(request_id: str) -> HttpCall[AbortResponse]:
    """`POST /v1/requests/{request_id}/abort`."""
    path = f"/v1/requests/{quote(request_id, safe='')}/abort"
    return HttpCall("POST", path, _parser(AbortResponse))


def model() -> HttpCall[ModelCard]:
    """`GET /v1/model`."""
    return HttpCall("GET", "/v1/model", _parser(ModelCard))


def models() -> HttpCall[ListedModels]:
    """`GET /v1/models`."""
    return HttpCall("GET", "/v1/models", _parser(ListedModels))


def add_model(name: str, source: Path | str, settings: dict[str, Any], *, pinned: bool) -> HttpCall[ListedModel]:
    """`POST /v1/models`. source: the archive at a `Path` is uploaded; a string is sent as it is."""
    parse = _parser(ListedModel)
    if isinstance(source, str):
        body = {"name": name, "source": source, "settings": settings, "pinned": pinned}
        return HttpCall("POST", "/v1/models", parse, body)
    query = {"name": name, "settings": json.dumps(settings), "pinned": pinned}
    return HttpCall("POST", "/v1/models", parse, query=query, upload=source)


def change_model(name: str, action: ModelAction) -> HttpCall[ListedModel]:
    """`POST /v1/models/{name}/{action}`."""
    return HttpCall("POST", f"/v1/models/{quote(name, safe='')}/{action}", _parser(ListedModel))


def delete_model(name: str) -> HttpCall[None]:
    """`DELETE /v1/models/{name}`."""
    return HttpCall("DELETE", f"/v1/models/{quote(name, safe='')}", lambda _: None)


def status() -> HttpCall[ServerStatus]:
    """`GET /v1/status`."""
    return HttpCall("GET", "/v1/status", _parser(ServerStatus))


def adapters() -> HttpCall[AdapterList]:
    """`GET /v1/adapters`."""
    return HttpCall("GET", "/v1/adapters", _parser(AdapterList))


def adapter(adapter_id: str) -> HttpCall[AdapterInfo]:
    """`GET /v1/adapters/{adapter_id}`."""
    return HttpCall("GET", _adapter_path(adapter_id), _parser(AdapterInfo))


def put_adapter(adapter_id: str, adapter: Path | str | None, options: dict[str, Any]) -> HttpCall[AdapterInfo]:
    """`PUT /v1/adapters/{adapter_id}`. adapter: the content of a `Path` is uploaded; a string is sent as `source`."""
    path, parse = _adapter_path(adapter_id), _parser(AdapterInfo)
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(adapter, str):
        return HttpCall("PUT", path, parse, body={"source": adapter, **options})
    return HttpCall("PUT", path, parse, query=options, upload=adapter)


def delete_adapter(adapter_id: str) -> HttpCall[None]:
    """`DELETE /v1/adapters/{adapter_id}`."""
    return HttpCall("DELETE", _adapter_path(adapter_id), lambda _: None)


def _parser(kind: type[Answer]) -> Callable[[bytes], Answer]:
    """A parser of JSON to the dataclass `kind`. It raises httpx.DecodingError, without the content in its message."""

    def parse(content: bytes) -> Answer:
        try:
            return cast(Answer, _type_adapter(cast(Any, kind)).validate_json(content))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            path = ".".join(map(str, first["loc"])) or "body"
            raise httpx.DecodingError(f"the server's answer is malformed: {path}: {first['msg']}") from None

    return parse


@cache
def _type_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _parse_line(line: bytes) -> StreamedEntity | StreamedEnd:
    """Parse a line of a stream, which its first field shows: an entity, or the rest of the answer. Raises the error of
    an error line."""
    if line.startswith(b'{"error"'):
        raise from_detail(_parser(ErrorBody)(line).error)
    if line.startswith(b'{"entity"'):
        return _parser(StreamedEntity)(line)
    return _parser(StreamedEnd)(line)


def _adapter_path(adapter_id: str) -> str:
    return f"/v1/adapters/{quote(adapter_id, safe='')}"


def _error_detail(response: httpx.Response) -> ErrorDetail:
    """The error in the body, or, if another program such as a proxy responded, an error that names the status."""
    try:
        return _parser(ErrorBody)(response.content).error
    except httpx.DecodingError:
        kind = NotReady if response.status_code in (502, 503) else InternalError
        return kind(f"the server answered {response.status_code}").detail()

"""The requests of both clients, and the parsing of their answers. Without IO."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from gliner_bento.adapter_types import AdapterInfo, AdapterList
from gliner_bento.client.notebook import ExtractAnswer, ExtractBatchAnswer
from gliner_bento.errors import ErrorBody, ErrorDetail, InternalError, NotReady, from_detail
from gliner_bento.model_types import ListedModel, ListedModels, ModelAction
from gliner_bento.status_types import AbortResponse, ModelCard, ServerStatus
from gliner_bento.tasks.base import AnyTask
from gliner_bento.tasks.extraction import ExtractBatchResponse
from gliner_bento.tasks.labels import LabelOptions
from gliner_bento.tasks.table import TASKS

Answer = TypeVar("Answer")
Labels = list[str] | Mapping[str, str | LabelOptions]


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[Answer]):
    """One request. answer: parses the content of a successful answer.

    body: sent as JSON. upload: archive, or folder of an adapter, sent as the body instead.
    """

    method: str
    path: str
    answer: Callable[[bytes], Answer]
    body: dict[str, Any] | None = None
    query: dict[str, Any] | None = None
    upload: Path | None = None

    def read(self, response: httpx.Response) -> Answer:
        """The answer. Raises the `GLiNERBentoError` of an error answer."""
        if response.is_success:
            return self.answer(response.content)
        raise from_detail(_detail(response))


def one(task: str, text: str, options: dict[str, Any]) -> HttpCall[Any]:
    """`POST /v1/{task}`."""
    return HttpCall("POST", f"/v1/{task}", _parsed(TASKS[task].answer), {"text": text, **options})


def stream(task: str, text: str, options: dict[str, Any]) -> HttpCall[Any]:
    """`POST /v1/{task}/stream`; `HttpCall.answer` parses one line."""
    return HttpCall("POST", f"/v1/{task}/stream", partial(_line, TASKS[task]), {"text": text, **options})


def batch(task: str, texts: Sequence[str], options: dict[str, Any]) -> HttpCall[Any]:
    """`POST /v1/{task}/batch`, with options that all texts share."""
    return HttpCall("POST", f"/v1/{task}/batch", _parsed(TASKS[task].batch_answer), {"texts": list(texts), **options})


def extract(text: str, labels: Labels | None, options: dict[str, Any]) -> HttpCall[ExtractAnswer]:
    """`POST /v1/extract`."""
    body = {"text": text, **_given(labels), **options}
    return HttpCall("POST", "/v1/extract", lambda content: _parsed(ExtractAnswer)(content).of(text), body)


def extract_batch(texts: Sequence[str], labels: Labels | None, options: dict[str, Any]) -> HttpCall[ExtractBatchAnswer]:
    """`POST /v1/extract/batch`, with options that all texts share."""
    given = list(texts)
    body = {"texts": given, **_given(labels), **options}
    return HttpCall("POST", "/v1/extract/batch", lambda content: _parsed(ExtractBatchAnswer)(content).of(given), body)


def extract_items(
    texts: Sequence[str | Mapping[str, Any]], labels: Labels | None, options: dict[str, Any]
) -> HttpCall[ExtractBatchResponse]:
    """`POST /v1/extract/batch`, with texts that may have options of their own."""
    items = [{"text": text} if isinstance(text, str) else dict(text) for text in texts]
    body = {"items": items, **_given(labels), **options}
    return HttpCall("POST", "/v1/extract/batch", _parsed(ExtractBatchResponse), body)


def _given(labels: Labels | None) -> dict[str, Any]:
    return {} if labels is None else {"labels": labels}


def abort(request_id: str) -> HttpCall[AbortResponse]:
    """`POST /v1/requests/{request_id}/abort`."""
    path = f"/v1/requests/{quote(request_id, safe='')}/abort"
    return HttpCall("POST", path, _parsed(AbortResponse))


def model() -> HttpCall[ModelCard]:
    """`GET /v1/model`."""
    return HttpCall("GET", "/v1/model", _parsed(ModelCard))


def models() -> HttpCall[ListedModels]:
    """`GET /v1/models`."""
    return HttpCall("GET", "/v1/models", _parsed(ListedModels))


def add_model(name: str, source: Path | str, settings: dict[str, Any], *, pinned: bool) -> HttpCall[ListedModel]:
    """`POST /v1/models`: uploads the archive at a path, sends a string as the source."""
    answer = _parsed(ListedModel)
    if isinstance(source, str):
        body = {"name": name, "source": source, "settings": settings, "pinned": pinned}
        return HttpCall("POST", "/v1/models", answer, body)
    query = {"name": name, "settings": json.dumps(settings), "pinned": pinned}
    return HttpCall("POST", "/v1/models", answer, query=query, upload=source)


def change_model(name: str, action: ModelAction) -> HttpCall[ListedModel]:
    """`POST /v1/models/{name}/{action}`."""
    return HttpCall("POST", f"/v1/models/{quote(name, safe='')}/{action}", _parsed(ListedModel))


def delete_model(name: str) -> HttpCall[None]:
    """`DELETE /v1/models/{name}`."""
    return HttpCall("DELETE", f"/v1/models/{quote(name, safe='')}", lambda _: None)


def status() -> HttpCall[ServerStatus]:
    """`GET /v1/status`."""
    return HttpCall("GET", "/v1/status", _parsed(ServerStatus))


def adapters() -> HttpCall[AdapterList]:
    """`GET /v1/adapters`."""
    return HttpCall("GET", "/v1/adapters", _parsed(AdapterList))


def adapter(adapter_id: str) -> HttpCall[AdapterInfo]:
    """`GET /v1/adapters/{adapter_id}`."""
    return HttpCall("GET", _adapter_path(adapter_id), _parsed(AdapterInfo))


def put_adapter(adapter_id: str, adapter: Path | str | None, options: dict[str, Any]) -> HttpCall[AdapterInfo]:
    """`PUT /v1/adapters/{adapter_id}`: uploads the content of a path, sends a string as the source."""
    path, answer = _adapter_path(adapter_id), _parsed(AdapterInfo)
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(adapter, str):
        return HttpCall("PUT", path, answer, body={"source": adapter, **given})
    return HttpCall("PUT", path, answer, query=given, upload=adapter)


def delete_adapter(adapter_id: str) -> HttpCall[None]:
    """`DELETE /v1/adapters/{adapter_id}`."""
    return HttpCall("DELETE", _adapter_path(adapter_id), lambda _: None)


def _parsed(kind: type[Answer]) -> Callable[[bytes], Answer]:
    """A parser of a dataclass from JSON. It raises httpx.DecodingError, whose message has no content of the answer."""

    def parse(content: bytes) -> Answer:
        try:
            return cast(Answer, _adapter_of(cast(Any, kind)).validate_json(content))
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            path = ".".join(map(str, fault["loc"])) or "body"
            raise httpx.DecodingError(f"the server's answer is malformed: {path}: {fault['msg']}") from None

    return parse


@cache
def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _line(task: AnyTask, line: bytes) -> Any:
    """Parse a line of a stream. Raises the `GLiNERBentoError` of an error line."""
    if line.startswith(b'{"error"'):
        raise from_detail(_parsed(ErrorBody)(line).error)
    if task.line and line.startswith(f'{{"{fields(task.line)[0].name}"'.encode()):
        return _parsed(task.line)(line)
    return _parsed(task.end)(line)


def _adapter_path(adapter_id: str) -> str:
    return f"/v1/adapters/{quote(adapter_id, safe='')}"


def _detail(response: httpx.Response) -> ErrorDetail:
    try:
        return _parsed(ErrorBody)(response.content).error
    except httpx.DecodingError:
        kind = NotReady if response.status_code in (502, 503) else InternalError
        return kind(f"the server answered {response.status_code}").detail()

"""The sync and the async client. Each has one connection pool; both send the requests that `calls` builds."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
from typing_extensions import Self

from gliner_bento.adapter_types import AdapterInfo, AdapterList
from gliner_bento.client import calls
from gliner_bento.client.calls import Labels
from gliner_bento.client.many import DEFAULT_RETRY_S, DEFAULT_WINDOW, Sender, Text, in_order, in_order_sync
from gliner_bento.client.notebook import ExtractAnswer, ExtractBatchAnswer
from gliner_bento.client.upload import opened, pieces
from gliner_bento.errors import InvalidField
from gliner_bento.model_types import ListedModel, ModelAction
from gliner_bento.redact_types import RedactResponse, RestoreResponse
from gliner_bento.status_types import AbortResponse, ModelCard, ServerStatus
from gliner_bento.tasks.extraction import BatchResult, Entity, StreamedEnd, StreamedEntity

DEFAULT_URL = "http://localhost:3000"
KEY_VARIABLE = "GLINER_CLIENT_API_KEY"
"""Environment variable with the default API key of both clients."""

Answer = TypeVar("Answer")


class Client:
    """Calls a gliner-bento server.

    `options` are the other fields of a method's request (`relations`, `request_id`, ...; see `ExtractRequest`).
    The default `api_key` is the environment variable `GLINER_CLIENT_API_KEY`.
    `model` is the server's model that all calls use, also those about adapters; a call's option `model` overrides it.
    Every method raises the `GLiNERBentoError` of an error response; if none arrived, `NotReady`, or `DeadlineExceeded`
    after `timeout_s`.

        with Client() as client:
            for entity in client.extract("Ada Lovelace lived in London.", ["person", "city"]).entities:
                print(entity.text, entity.label)
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, api_key: str | None = None, timeout_s: float = 60.0, model: str | None = None
    ) -> None:
        self._url, self._api_key = calls.checked_url(url), api_key
        self._timeout_s, self._model = timeout_s, model
        self._http = httpx.Client(
            base_url=url, timeout=timeout_s, headers=_authorization(api_key), params=_query(model)
        )

    def extract(self, text: str, labels: Labels | None = None, **options: Any) -> ExtractAnswer:
        """Entities, relations, classifications and structures of one text."""
        return self._send(calls.extract(text, labels, options))

    def extract_stream(self, text: str, labels: Labels | None = None, **options: Any) -> Iterator[Entity | StreamedEnd]:
        """Entities of one text, in order of position, as they become final; then the rest of the answer.

        Ending the iteration early stops the server's work on the text.
        """
        call = calls.extract_stream(text, labels, options)
        with (
            calls.without_httpx_errors(self._url),
            self._http.stream(call.method, call.path, **call.options()) as response,
        ):
            if not response.is_success:
                response.read()
                call.parse_response(response)  # raises the response's error
            for content in response.iter_lines():
                line = call.parse(content.encode())
                yield line.entity if isinstance(line, StreamedEntity) else line

    def extract_batch(self, texts: Sequence[str], labels: Labels | None = None, **options: Any) -> ExtractBatchAnswer:
        """One result or error per text, in order."""
        return self._send(calls.extract_batch(texts, labels, options))

    def extract_many(
        self,
        texts: Iterable[Text],
        labels: Labels | None = None,
        *,
        window: int = DEFAULT_WINDOW,
        retry_s: float = DEFAULT_RETRY_S,
        **options: Any,
    ) -> Iterator[BatchResult]:
        """One result or error per text, in order, for any number of texts.

        As many requests run concurrently as the server accepts. A refused request (429, 503) is sent again after
        `Retry-After` and some jitter.

        texts: strings, or mappings with a `text` and options for it (`labels`, `adapter_id`, ...), read lazily.
        window: about how many texts may be read ahead of the results that the caller has taken.
        retry_s: how long a request is repeated while it is refused or the server is unreachable; then the error is
        raised."""
        _check_many(texts, window)
        client = AsyncClient(self._url, api_key=self._api_key, timeout_s=self._timeout_s, model=self._model)
        sender = Sender([client.send], labels, options, window=window, retry_s=retry_s)
        return in_order_sync(texts, sender, window, client.aclose)

    def redact(self, texts: Sequence[str], **options: Any) -> RedactResponse:
        """The texts of a conversation without personal data. options: see `RedactRequest`; `mapping` is the one of the
        previous turn."""
        return self._send(calls.redact(texts, options))

    def restore(self, text: str, mapping: str, **options: Any) -> RestoreResponse:
        """A text with the originals that `redact` has replaced. options: see `RestoreRequest`."""
        return self._send(calls.restore(text, mapping, options))

    def abort(self, request_id: str) -> AbortResponse:
        """Stop a waiting or running request."""
        return self._send(calls.abort(request_id))

    def model(self) -> ModelCard:
        """The model, what it supports, and the limits of its requests."""
        return self._send(calls.model())

    def models(self) -> list[ListedModel]:
        """The models of the server, with their states; the `default` one answers calls that name no model."""
        return self._send(calls.models()).data

    def add_model(self, name: str, source: Path | str, *, pinned: bool = False, **settings: Any) -> ListedModel:
        """Serve another model. source: a `Path` of a .zip or .tar.gz is uploaded; a string names a folder in the
        `model_root` of the server, or `hub:owner/name`. settings: the model's own settings."""
        return self._send(calls.add_model(name, source, settings, pinned=pinned))

    def change_model(self, name: str, action: ModelAction) -> ListedModel:
        """Load, unload, pin or unpin a model."""
        return self._send(calls.change_model(name, action))

    def delete_model(self, name: str) -> None:
        """Stop serving a model, after the requests that use it have ended."""
        self._send(calls.delete_model(name))

    def status(self) -> ServerStatus:
        """The server's current state and load."""
        return self._send(calls.status())

    def adapters(self) -> AdapterList:
        """Every LoRA adapter of the server."""
        return self._send(calls.adapters())

    def adapter(self, adapter_id: str) -> AdapterInfo:
        """One LoRA adapter."""
        return self._send(calls.adapter(adapter_id))

    def put_adapter(
        self,
        adapter_id: str,
        adapter: Path | str | None = None,
        *,
        revision: str | None = None,
        pinned: bool | None = None,
        preload: bool = True,
        replace: bool = False,
    ) -> AdapterInfo:
        """Install an adapter, or pin or unpin an installed one.

        adapter: a `Path` is uploaded: the folder that PEFT saved, or a .zip or .tar.gz of it. A string names a source
            of the server: a folder in its `adapter_root`, or `hub:owner/name` (of `revision`). None: the adapter is
            installed already.
        pinned: whether the adapter is kept in memory, evicted only after all others; None changes nothing.
        preload: load the adapter before this returns, instead of at its first request.
        replace: replace an adapter that has this id and other content, instead of raising `Conflict`.
        """
        options = {"revision": revision, "pinned": pinned, "preload": preload, "replace": replace or None}
        return self._send(calls.put_adapter(adapter_id, adapter, options))

    def delete_adapter(self, adapter_id: str) -> None:
        """Delete an adapter, after the requests that use it have ended."""
        self._send(calls.delete_adapter(adapter_id))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: calls.HttpCall[Answer]) -> Answer:
        options = call.options()
        with opened(call.upload) as file, calls.without_httpx_errors(self._url):
            response = self._http.request(call.method, call.path, **options | ({"content": file} if file else {}))
        return call.parse_response(response)


class AsyncClient:
    """`Client` for asyncio, with the same methods. transport: an httpx transport, for example `httpx.ASGITransport`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        model: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = calls.checked_url(url)
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            headers=_authorization(api_key),
            params=_query(model),
            transport=transport,
        )

    async def extract(self, text: str, labels: Labels | None = None, **options: Any) -> ExtractAnswer:
        """As `Client.extract`."""
        return await self._send(calls.extract(text, labels, options))

    async def extract_stream(
        self, text: str, labels: Labels | None = None, **options: Any
    ) -> AsyncIterator[Entity | StreamedEnd]:
        """As `Client.extract_stream`."""
        call = calls.extract_stream(text, labels, options)
        with calls.without_httpx_errors(self._url):
            async with self._http.stream(call.method, call.path, **call.options()) as response:
                if not response.is_success:
                    await response.aread()
                    call.parse_response(response)  # raises the response's error
                async for content in response.aiter_lines():
                    line = call.parse(content.encode())
                    yield line.entity if isinstance(line, StreamedEntity) else line

    async def extract_batch(
        self, texts: Sequence[str], labels: Labels | None = None, **options: Any
    ) -> ExtractBatchAnswer:
        """As `Client.extract_batch`."""
        return await self._send(calls.extract_batch(texts, labels, options))

    def extract_many(
        self,
        texts: Iterable[Text] | AsyncIterable[Text],
        labels: Labels | None = None,
        *,
        window: int = DEFAULT_WINDOW,
        retry_s: float = DEFAULT_RETRY_S,
        **options: Any,
    ) -> AsyncGenerator[BatchResult, None]:
        """As `Client.extract_many`; the texts may be an asynchronous iterable."""
        _check_many(texts, window)
        sender = Sender([self.send], labels, options, window=window, retry_s=retry_s)
        return in_order(texts, sender, window)

    async def send(self, call: calls.HttpCall[Any]) -> httpx.Response:
        """Send a call; returns the unparsed response."""
        return await self._http.request(call.method, call.path, **call.options())

    async def redact(self, texts: Sequence[str], **options: Any) -> RedactResponse:
        """As `Client.redact`."""
        return await self._send(calls.redact(texts, options))

    async def restore(self, text: str, mapping: str, **options: Any) -> RestoreResponse:
        """As `Client.restore`."""
        return await self._send(calls.restore(text, mapping, options))

    async def abort(self, request_id: str) -> AbortResponse:
        """As `Client.abort`."""
        return await self._send(calls.abort(request_id))

    async def model(self) -> ModelCard:
        """As `Client.model`."""
        return await self._send(calls.model())

    async def models(self) -> list[ListedModel]:
        """As `Client.models`."""
        return (await self._send(calls.models())).data

    async def add_model(self, name: str, source: Path | str, *, pinned: bool = False, **settings: Any) -> ListedModel:
        """As `Client.add_model`."""
        return await self._send(calls.add_model(name, source, settings, pinned=pinned))

    async def change_model(self, name: str, action: ModelAction) -> ListedModel:
        """As `Client.change_model`."""
        return await self._send(calls.change_model(name, action))

    async def delete_model(self, name: str) -> None:
        """As `Client.delete_model`."""
        await self._send(calls.delete_model(name))

    async def status(self) -> ServerStatus:
        """As `Client.status`."""
        return await self._send(calls.status())

    async def adapters(self) -> AdapterList:
        """As `Client.adapters`."""
        return await self._send(calls.adapters())

    async def adapter(self, adapter_id: str) -> AdapterInfo:
        """As `Client.adapter`."""
        return await self._send(calls.adapter(adapter_id))

    async def put_adapter(
        self,
        adapter_id: str,
        adapter: Path | str | None = None,
        *,
        revision: str | None = None,
        pinned: bool | None = None,
        preload: bool = True,
        replace: bool = False,
    ) -> AdapterInfo:
        """As `Client.put_adapter`."""
        options = {"revision": revision, "pinned": pinned, "preload": preload, "replace": replace or None}
        return await self._send(calls.put_adapter(adapter_id, adapter, options))

    async def delete_adapter(self, adapter_id: str) -> None:
        """As `Client.delete_adapter`."""
        await self._send(calls.delete_adapter(adapter_id))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _send(self, call: calls.HttpCall[Answer]) -> Answer:
        options = call.options()
        with opened(call.upload) as file, calls.without_httpx_errors(self._url):
            if file:
                length = str(os.fstat(file.fileno()).st_size)
                options |= {"content": pieces(file), "headers": {"Content-Length": length}}
            response = await self._http.request(call.method, call.path, **options)
        return call.parse_response(response)


def _check_many(texts: object, window: int) -> None:
    if isinstance(texts, str):
        raise InvalidField("texts: must be several texts, such as a list, not one string", param="texts")
    if window < 1:
        raise ValueError("window: must be at least 1")


def _authorization(api_key: str | None) -> dict[str, str]:
    key = api_key or os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _query(model: str | None) -> dict[str, str]:
    """The query parameters of every request; every route accepts the model's name as a parameter."""
    return {"model": model} if model else {}

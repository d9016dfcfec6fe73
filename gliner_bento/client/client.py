"""The two clients, sync and async: one connection pool each, over the same calls."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import httpx
from typing_extensions import Self

from gliner_bento.adapter_types import AdapterInfo, AdapterList
from gliner_bento.client import calls
from gliner_bento.client.calls import Labels
from gliner_bento.client.many import DEFAULT_RETRY_S, DEFAULT_WINDOW, Sender, Text, in_order, in_order_from_a_thread
from gliner_bento.client.notebook import ExtractAnswer, ExtractBatchAnswer
from gliner_bento.client.upload import opened, pieces
from gliner_bento.model_types import ListedModel, ModelAction
from gliner_bento.status_types import AbortResponse, ModelCard, ServerStatus
from gliner_bento.tasks.extraction import BatchResult, Entity, StreamedEnd, StreamedEntity

DEFAULT_URL = "http://localhost:3000"
KEY_VARIABLE = "GLINER_CLIENT_API_KEY"
"""Environment variable of the clients' default API key."""

Answer = TypeVar("Answer")


class Client:
    """Calls a gliner-bento server.

    `options` are the other fields of the request (`relations`, `threshold`, `request_id`, ...; see `ExtractRequest`).
    `api_key` is by default the environment's `GLINER_CLIENT_API_KEY`.
    `model` names one of the server's models for every call, also for its adapters; the option `model` of a call wins.
    Every method raises the `GLiNERBentoError` of an error answer, or httpx's own error if no answer arrived.

        with Client() as client:
            for entity in client.extract("Ada Lovelace lived in London.", ["person", "city"]).entities:
                print(entity.text, entity.label)
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, api_key: str | None = None, timeout_s: float = 60.0, model: str | None = None
    ) -> None:
        self._url, self._api_key, self._timeout_s, self._model = url, api_key, timeout_s, model
        self._http = httpx.Client(
            base_url=url, timeout=timeout_s, headers=_authorization(api_key), params=_query(model)
        )

    def extract(self, text: str, labels: Labels | None = None, **options: Any) -> ExtractAnswer:
        """Entities and relations of one text, and its `classifications`."""
        return self._send(calls.extract(text, labels, options))

    def extract_stream(self, text: str, labels: Labels | None = None, **options: Any) -> Iterator[Entity | StreamedEnd]:
        """Entities of one text, in order of position, as they become final; then the rest of the answer.

        Ending the iteration early stops the server's work on the text.
        """
        for line in self.run_stream("extract", text, labels=labels, **options):
            yield line.entity if isinstance(line, StreamedEntity) else line

    def run(self, task: str, text: str, **options: Any) -> Any:
        """The answer of a task of the table, `gliner_bento.tasks.table.TASKS`, for one text."""
        return self._send(calls.one(task, text, options))

    def run_batch(self, task: str, texts: Sequence[str], **options: Any) -> Any:
        """One result or error per text, in order, of a task of the table."""
        return self._send(calls.batch(task, texts, options))

    def run_stream(self, task: str, text: str, **options: Any) -> Iterator[Any]:
        """The lines of a task's stream for one text; the last one is the rest of the answer."""
        call = calls.stream(task, text, options)
        with self._http.stream(call.method, call.path, json=call.body) as answer:
            if not answer.is_success:
                answer.read()
                call.read(answer)
            for line in answer.iter_lines():
                yield call.answer(line.encode())

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

        Several requests run concurrently, as many as the server accepts. A refused one (429, 503) is sent again after
        `Retry-After` and some jitter.

        texts: texts, or mappings with a `text` and options of its own (`labels`, `adapter_id`, ...). Read as needed.
        window: maximum number of texts that have been read and whose results have not been taken.
        retry_s: how long a request is repeated while it is refused or the server is unreachable; then the error is
        raised."""
        _check_window(window)
        own = AsyncClient(self._url, api_key=self._api_key, timeout_s=self._timeout_s, model=self._model)
        sender = Sender([own.send], labels, options, window=window, retry_s=retry_s)
        return in_order_from_a_thread(texts, sender, window, own.aclose)

    def abort(self, request_id: str) -> AbortResponse:
        """Stop a waiting or running request."""
        return self._send(calls.abort(request_id))

    def model(self) -> ModelCard:
        """What is served, and with which limits."""
        return self._send(calls.model())

    def models(self) -> list[ListedModel]:
        """The models of the server, and the state of each; one is the default."""
        return self._send(calls.models()).data

    def add_model(self, name: str, source: Path | str, *, pinned: bool = False, **settings: Any) -> ListedModel:
        """Serve a further model. source: a `Path` of a .zip or .tar.gz is uploaded; a string names a folder in the
        `model_root` of the server, or `hub:owner/name`. settings: its own."""
        return self._send(calls.add_model(name, source, settings, pinned=pinned))

    def change_model(self, name: str, action: ModelAction) -> ListedModel:
        """Load, unload, pin or unpin a model."""
        return self._send(calls.change_model(name, action))

    def delete_model(self, name: str) -> None:
        """Serve a model no longer, after the requests that use it have ended."""
        self._send(calls.delete_model(name))

    def status(self) -> ServerStatus:
        """What the server does now."""
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
        """Install an adapter, or change how it is kept.

        adapter: a `Path` is uploaded: the folder that PEFT saved, or a .zip or .tar.gz of it. A string names a source
            of the server: a folder in its `adapter_root`, or `hub:owner/name` (of `revision`). None: the adapter is
            installed already.
        pinned: whether it is evicted from memory last; None changes nothing.
        preload: load it before this returns, instead of at its first request.
        replace: replace an adapter of this id with other content, instead of raising `Conflict`.
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
        with opened(call.upload) as file:
            answer = self._http.request(call.method, call.path, json=call.body, params=call.query, content=file)
        return call.read(answer)


class AsyncClient:
    """`Client` for asyncio: the same methods, awaited. transport: httpx's, for example an app in this process."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        model: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
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
        async with aclosing(self.run_stream("extract", text, labels=labels, **options)) as lines:
            async for line in lines:
                yield line.entity if isinstance(line, StreamedEntity) else line

    async def run(self, task: str, text: str, **options: Any) -> Any:
        """As `Client.run`."""
        return await self._send(calls.one(task, text, options))

    async def run_batch(self, task: str, texts: Sequence[str], **options: Any) -> Any:
        """As `Client.run_batch`."""
        return await self._send(calls.batch(task, texts, options))

    async def run_stream(self, task: str, text: str, **options: Any) -> AsyncGenerator[Any, None]:
        """As `Client.run_stream`."""
        call = calls.stream(task, text, options)
        async with self._http.stream(call.method, call.path, json=call.body) as answer:
            if not answer.is_success:
                await answer.aread()
                call.read(answer)
            async for line in answer.aiter_lines():
                yield call.answer(line.encode())

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
        _check_window(window)
        sender = Sender([self.send], labels, options, window=window, retry_s=retry_s)
        return in_order(texts, sender, window)

    async def send(self, call: calls.HttpCall[Any]) -> httpx.Response:
        """The response to a call, which is not parsed."""
        return await self._http.request(call.method, call.path, json=call.body, params=call.query)

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
        with opened(call.upload) as file:
            answer = await self._http.request(
                call.method,
                call.path,
                json=call.body,
                params=call.query,
                content=pieces(file) if file else None,
                headers={"Content-Length": str(os.fstat(file.fileno()).st_size)} if file else None,
            )
        return call.read(answer)


def _check_window(window: int) -> None:
    if window < 1:
        raise ValueError("window: must be at least 1")


def _authorization(api_key: str | None) -> dict[str, str]:
    key = api_key or os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _query(model: str | None) -> dict[str, str]:
    """The query of every request, which names the model in all routes."""
    return {"model": model} if model else {}

"""The clients themselves: one connection pool each, and nothing that the other has to repeat but the waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel
from typing_extensions import Self

from gliner_bento.client import calls
from gliner_bento.types import AbortResponse, ExtractBatchResponse, ExtractResponse, Labels, ModelCard

DEFAULT_URL = "http://localhost:3000"
Answer = TypeVar("Answer", bound=BaseModel)


class Client:
    """Calls a gliner-bento server.

    `options` are the other fields of the request (`relations`, `threshold`, `request_id`, ...; see `ExtractRequest`).
    Every method raises the `GLiNERBentoError` that the server answered, or httpx's own error where none arrived.

        with Client() as client:
            for entity in client.extract("Ada Lovelace lived in London.", ["person", "city"]).entities:
                print(entity.text, entity.label)
    """

    def __init__(self, url: str = DEFAULT_URL, *, timeout_s: float = 60.0) -> None:
        self._http = httpx.Client(base_url=url, timeout=timeout_s)

    def extract(self, text: str, labels: Labels, **options: Any) -> ExtractResponse:
        """Entities and relations of one text."""
        return self._send(calls.extract(text, labels, options))

    def extract_batch(self, texts: Sequence[str], labels: Labels, **options: Any) -> ExtractBatchResponse:
        """One result or error per text, in order."""
        return self._send(calls.extract_batch(texts, labels, options))

    def abort(self, request_id: str) -> AbortResponse:
        """Stop a waiting or running request."""
        return self._send(calls.abort(request_id))

    def model(self) -> ModelCard:
        """What is served, and with which limits."""
        return self._send(calls.model())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: calls.Call[Answer]) -> Answer:
        return call.read(self._http.request(call.method, call.path, json=call.body))


class AsyncClient:
    """`Client` for asyncio: the same methods, awaited."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout_s: float = 60.0) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout_s)

    async def extract(self, text: str, labels: Labels, **options: Any) -> ExtractResponse:
        """As `Client.extract`."""
        return await self._send(calls.extract(text, labels, options))

    async def extract_batch(self, texts: Sequence[str], labels: Labels, **options: Any) -> ExtractBatchResponse:
        """As `Client.extract_batch`."""
        return await self._send(calls.extract_batch(texts, labels, options))

    async def abort(self, request_id: str) -> AbortResponse:
        """As `Client.abort`."""
        return await self._send(calls.abort(request_id))

    async def model(self) -> ModelCard:
        """As `Client.model`."""
        return await self._send(calls.model())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _send(self, call: calls.Call[Answer]) -> Answer:
        return call.read(await self._http.request(call.method, call.path, json=call.body))

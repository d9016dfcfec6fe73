"""GLiNERClient: gliner.serve's client, on the standard library alone."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

from gliner_bento.settings.gliner_serve import PORT

LabelSet = list[str] | dict[str, str]
Labels = LabelSet | list[LabelSet]
Answer = dict[str, Any]

KEY_VARIABLE = "GLINER_CLIENT_API_KEY"
"""Environment variable of the default API key."""


class GLiNERClientError(RuntimeError):
    """The server answered with an error, or cannot be reached. status: HTTP status; None without an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def payloads(
    text: str | Sequence[str],
    labels: Labels,
    relations: list[str] | None = None,
    threshold: float | None = None,
    relation_threshold: float | None = None,
    flat_ner: bool = True,
    multi_label: bool = False,
    adapter_id: str | None = None,
) -> list[dict[str, Any]]:
    """The request body of each text. Raises ValueError if `labels` has label sets per text, but not one for each."""
    texts = [text] if isinstance(text, str) else list(text)
    options = {
        "relations": relations,
        "threshold": threshold,
        "relation_threshold": relation_threshold,
        "flat_ner": flat_ner,
        "multi_label": multi_label,
        "adapter_id": adapter_id,
    }
    given = {name: value for name, value in options.items() if value is not None}
    pairs = zip(texts, _labels_of(labels, len(texts)), strict=True)
    return [{"text": own_text, "labels": own_labels, **given} for own_text, own_labels in pairs]


def _labels_of(labels: Labels, texts: int) -> list[LabelSet]:
    if isinstance(labels, list) and labels and isinstance(labels[0], (list, dict)):
        if len(labels) != texts:
            raise ValueError(f"Per-text labels must have length {texts}, got {len(labels)}")
        return labels
    return [cast(LabelSet, labels)] * texts


P = ParamSpec("P")
R = TypeVar("R")


def parameters_of(typed: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the parameters of `typed`, for type checkers, editors and `help`."""

    def decorated(function: Callable[..., R]) -> Callable[P, R]:
        function.__signature__ = inspect.signature(typed)  # type: ignore[attr-defined]
        return function

    return decorated


class GLiNERClient:
    """Calls the routes below a server's `route_prefix`. The texts of a list are sent as concurrent requests, and the
    server puts them into batches.

    api_key: default: the environment variable GLINER_CLIENT_API_KEY.
    """

    def __init__(
        self,
        base_url: str = f"http://localhost:{PORT}",
        route_prefix: str = "/gliner",
        timeout: float = 30.0,
        max_concurrency: int = 32,
        *,
        api_key: str | None = None,
    ) -> None:
        self.url = base_url.rstrip("/") + route_prefix
        self.timeout = timeout
        self.max_concurrency = max_concurrency
        self._api_key = api_key or os.environ.get(KEY_VARIABLE)

    def predict(
        self,
        text: str | Sequence[str],
        labels: Labels,
        relations: list[str] | None = None,
        threshold: float | None = None,
        relation_threshold: float | None = None,
        flat_ner: bool = True,
        multi_label: bool = False,
        adapter_id: str | None = None,
    ) -> Any:
        """Entities, and relations if `relations` is given: a dict for a text, a list of dicts for a list of texts."""
        bodies = payloads(text, labels, relations, threshold, relation_threshold, flat_ner, multi_label, adapter_id)
        if isinstance(text, str):
            return self.post(bodies[0])
        with ThreadPoolExecutor(max(1, min(self.max_concurrency, len(bodies)))) as pool:
            return list(pool.map(self.post, bodies))

    @parameters_of(predict)
    async def predict_async(self, *arguments: Any, **named: Any) -> Any:
        """Like `predict`, which runs in a thread."""
        return await asyncio.to_thread(self.predict, *arguments, **named)

    def adapter_cache_status(self, adapter_id: str | None = None) -> Answer:
        """Which adapters are on the device, in memory and on disk; with `adapter_id`, also where that adapter is."""
        query = "?" + urllib.parse.urlencode({"adapter_id": adapter_id}) if adapter_id is not None else ""
        return self._send(urllib.request.Request(f"{self.url}/adapter-cache{query}", headers=self._headers()))

    def is_adapter_cached(self, adapter_id: str) -> bool:
        """Whether the server has the adapter on disk."""
        return bool(self.adapter_cache_status(adapter_id).get("cached"))

    def post(self, payload: dict[str, Any]) -> Answer:
        """Send one request. Raises `GLiNERClientError`."""
        headers = {"Content-Type": "application/json", **self._headers()}
        body = json.dumps(payload).encode()
        return self._send(urllib.request.Request(self.url, data=body, headers=headers, method="POST"))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}

    def _send(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                answer: Answer = json.loads(response.read())
                return answer
        except urllib.error.HTTPError as error:
            with error:
                message = f"{error}: {error.read().decode(errors='replace')}"
            raise GLiNERClientError(f"Request to {request.full_url} failed: {message}", error.code) from error
        except (OSError, ValueError) as error:
            raise GLiNERClientError(f"Request to {request.full_url} failed: {error}") from error


get_client = GLiNERClient

"""Extracts from many texts: several per request, as many concurrent requests as servers accept, results in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from gliner_bento.client.aimd import SendWindow, delay_s
from gliner_bento.client.calls import HttpCall, Labels, checked_text, extract_items, not_answered
from gliner_bento.errors import (
    EndsProcess,
    Forbidden,
    GLiNERBentoError,
    InternalError,
    InvalidField,
    ModelNotLoaded,
    NotReady,
    QueueFull,
    RateLimited,
    RouteNotFound,
    Unauthorized,
    from_detail,
)
from gliner_bento.tasks.extraction import LIMIT_WARNINGS, BatchResult, ExtractBatchResponse

Text = str | Mapping[str, Any]
"""A text, or a mapping with a `text` and options for it: the fields of `ExtractItem`."""

MAX_TEXTS = 16
"""Maximum number of texts in one request."""

DEFAULT_WINDOW = 512
DEFAULT_RETRY_S = 120.0

_MAX_CHARS = 2**18  # a request with at least as many characters gets no further text
_MIN_AVOID_S = 1.0
"""Minimum time for which a server that is not ready or does not answer is avoided, if there are other servers."""
_TRANSIENT_CODES = {QueueFull.code, RateLimited.code, NotReady.code, ModelNotLoaded.code}
_CALLER_ERRORS = (Unauthorized, Forbidden, RouteNotFound)

Send = Callable[[HttpCall[ExtractBatchResponse]], Awaitable[httpx.Response]]


@dataclass(eq=False)
class _Server:
    """A server and its window. avoided_until_s: until then (`time.monotonic`), other servers are preferred."""

    send: Send
    window: SendWindow
    avoided_until_s: float = 0.0


class Sender:
    """Sends groups of texts to one or several servers that serve the same model.

    retry_s: how long a group is repeated while it is refused (429, 503) or not answered. window: maximum number of
    texts under way per server."""

    def __init__(
        self,
        servers: Sequence[Send],
        labels: Labels | None,
        options: dict[str, Any],
        *,
        window: int = DEFAULT_WINDOW,
        retry_s: float = DEFAULT_RETRY_S,
    ) -> None:
        self._servers = [_Server(send, SendWindow(window, MAX_TEXTS)) for send in servers]
        self._labels, self._options = labels, options
        self._retry_s = retry_s
        self._changed = asyncio.Condition()

    async def send(self, given: Sequence[Text | InvalidField]) -> list[BatchResult]:
        """A result or an error for each text. An `InvalidField` in place of a text is its error.

        Raises errors that concern all texts, such as a wrong API key, and the error of a text that is still refused
        after `retry_s`.
        """
        texts: dict[int, Text] = {}
        results: dict[int, BatchResult] = {}
        for index, text in enumerate(given):
            if isinstance(text, InvalidField):
                results[index] = BatchResult(error=text.detail())
            else:
                texts[index] = text
        waiting = list(texts)  # indexes of the texts without a final result
        attempt, deadline_s = 0, time.monotonic() + self._retry_s
        while waiting:
            answered, retry_after_s = await self._request([texts[index] for index in waiting])
            results.update(zip(waiting, answered, strict=True))
            waiting = [index for index in waiting if _code(results[index]) in _TRANSIENT_CODES]
            if not waiting:
                break
            pause_s = delay_s(attempt, retry_after_s)
            if time.monotonic() + pause_s > deadline_s:
                error = results[waiting[0]].error
                assert error
                raise from_detail(error)
            await asyncio.sleep(pause_s)
            attempt += 1
        return [results[index] for index in range(len(given))]

    async def _request(self, texts: Sequence[Text]) -> tuple[list[BatchResult], float]:
        """Send the texts in one request, and then each text whose result depends on the batch in a request of its own.
        Returns the results, and the server's `Retry-After` in seconds."""
        call = extract_items(texts, self._labels, self._options)
        server = await self._reserve(len(texts))
        decreases = server.window.decreases
        try:
            response = await server.send(call)
            results = list(call.parse_response(response).results)
            if len(results) != len(texts):
                raise httpx.DecodingError(f"the server's answer has {len(results)} results for {len(texts)} texts")
            if not all(map(_belongs_to, results, texts)):  # all are dropped, because they may be in a wrong order
                message = "the server's answer has an empty result, or an entity that is not in the text"
                results = _failed(texts, InternalError(message))
        except _CALLER_ERRORS:
            raise
        except httpx.TransportError as error:
            results = _failed(texts, not_answered(error.request.url.host, error))
            retry_after_s = 0.0
        except GLiNERBentoError as error:
            results = _failed(texts, error)
            retry_after_s = _retry_after_s(response)
        else:
            retry_after_s = 1.0  # if the server refused some texts of the batch
        await self._release(server, results, decreases, retry_after_s)
        if len(texts) > 1:
            indexes = [index for index, result in enumerate(results) if _depends_on_the_batch(result)]
            sent_alone = await asyncio.gather(*(self.send([texts[index]]) for index in indexes))
            for index, (result,) in zip(indexes, sent_alone, strict=True):
                results[index] = result
        return results, retry_after_s

    async def _reserve(self, count: int) -> _Server:
        """Wait until a server has room for `count` texts; reserve it on the one with the fewest texts under way."""
        async with self._changed:
            while not (server := self._server_with_room(count)):
                await self._changed.wait()
            server.window.under_way += count
            return server

    def _server_with_room(self, count: int) -> _Server | None:
        now_s = time.monotonic()
        preferred = [server for server in self._servers if server.avoided_until_s <= now_s] or self._servers
        free = [server for server in preferred if server.window.has_room(count)]
        return min(free, key=lambda server: server.window.under_way, default=None)

    async def _release(
        self, server: _Server, results: Sequence[BatchResult], decreases: int, retry_after_s: float
    ) -> None:
        """End a reservation, and adjust the window. results: one per text. decreases: see `SendWindow.refused`."""
        server.window.under_way -= len(results)
        codes = {_code(result) for result in results}
        if codes & _TRANSIENT_CODES:
            server.window.refused(decreases)
            avoid_s = max(retry_after_s, _MIN_AVOID_S) if NotReady.code in codes else retry_after_s
            server.avoided_until_s = time.monotonic() + avoid_s
        else:
            server.window.accepted(len(results))
        async with self._changed:
            self._changed.notify_all()


async def in_order(
    texts: Iterable[Text] | AsyncIterable[Text], sender: Sender, window: int
) -> AsyncGenerator[BatchResult, None]:
    """One result or error per text, in order. window: see `Client.extract_many`."""
    waiting: deque[asyncio.Task[list[BatchResult]]] = deque()
    try:
        async for group in _grouped_async(texts):
            waiting.append(asyncio.create_task(sender.send(group)))
            await asyncio.sleep(0)  # starts the task
            while waiting and (waiting[0].done() or len(waiting) * MAX_TEXTS >= window):
                for result in await waiting.popleft():
                    yield result
        while waiting:
            for result in await waiting.popleft():
                yield result
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def in_order_sync(
    texts: Iterable[Text], sender: Sender, window: int, close: Callable[[], Awaitable[None]]
) -> Iterator[BatchResult]:
    """`in_order` for code without an event loop: a second thread sends, the caller's thread reads `texts`.

    close: awaited in the second thread at the end.
    """
    waiting: deque[Future[list[BatchResult]]] = deque()
    with _loop_in_a_thread() as loop:

        async def cancel_and_close() -> None:
            sending = asyncio.all_tasks() - {asyncio.current_task()}
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await close()

        try:
            for group in _grouped(texts):
                waiting.append(asyncio.run_coroutine_threadsafe(sender.send(group), loop))
                while waiting and (waiting[0].done() or len(waiting) * MAX_TEXTS >= window):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            asyncio.run_coroutine_threadsafe(cancel_and_close(), loop).result()


@contextmanager
def _loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="extract_many", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


_Group = list[Text | InvalidField]


class _Groups:
    """Divides texts into groups, one per request. A text that is not one counts as its error."""

    def __init__(self) -> None:
        self._group: _Group = []
        self._chars = self._count = 0

    def add(self, text: Text) -> _Group:
        """Add a text; returns the group if it is complete now, else an empty list."""
        try:
            checked = _checked(text, f"texts.{self._count}")
            self._chars += len(_text_of(checked))
            self._group.append(checked)
        except InvalidField as error:
            self._group.append(error)
        self._count += 1
        return self.take() if len(self._group) == MAX_TEXTS or self._chars >= _MAX_CHARS else []

    def take(self) -> _Group:
        """Return the texts collected so far, and start a new group."""
        group, self._group, self._chars = self._group, [], 0
        return group


def _grouped(texts: Iterable[Text]) -> Iterator[_Group]:
    groups = _Groups()
    for text in texts:
        if group := groups.add(text):
            yield group
    if group := groups.take():
        yield group


async def _grouped_async(texts: Iterable[Text] | AsyncIterable[Text]) -> AsyncIterator[_Group]:
    if not isinstance(texts, AsyncIterable):
        for group in _grouped(texts):
            yield group
        return
    groups = _Groups()
    async for text in texts:
        if group := groups.add(text):
            yield group
    if group := groups.take():
        yield group


def _checked(text: Text, param: str) -> Text:
    """Raises `InvalidField`, as `checked_text` does."""
    if not isinstance(text, Mapping):
        return checked_text(text, param)
    return {**text, "text": checked_text(text.get("text"), f"{param}.text")}


def _text_of(text: Text) -> str:
    return text if isinstance(text, str) else str(text.get("text", ""))


def _failed(texts: Sequence[Text], error: GLiNERBentoError) -> list[BatchResult]:
    return [BatchResult(error=error.detail()) for _ in texts]


def _belongs_to(result: BatchResult, text: Text) -> bool:
    return result.result.is_of(_text_of(text)) if result.result else result.error is not None


def _code(result: BatchResult) -> str | None:
    return result.error.code if result.error else None


def _depends_on_the_batch(result: BatchResult) -> bool:
    """Whether a result may differ if the text is sent alone: the texts of a batch share a deadline and the limits of an
    answer, and error messages contain the index in the batch. A text that ends processes has been run alone."""
    if result.error:
        return result.error.code not in {*_TRANSIENT_CODES, EndsProcess.code}
    return any(warning.code in LIMIT_WARNINGS for warning in result.result.warnings) if result.result else False


def _retry_after_s(response: httpx.Response) -> float:
    """The header Retry-After in seconds; 0 without it, or if it is a date, because the server's clock may differ."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else 0.0

"""A model in this process behind plain functions, for notebooks and scripts. Knows no routes: it calls `in_process`."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from threading import Thread, current_thread
from typing import Any

from typing_extensions import Self

from gliner_bento.client.calls import Labels
from gliner_bento.client.many import Text
from gliner_bento.client.notebook import ExtractAnswer, ExtractBatchAnswer
from gliner_bento.errors import NotReady
from gliner_bento.process.in_process import in_process
from gliner_bento.settings import Settings
from gliner_bento.status_types import ModelCard
from gliner_bento.tasks.extraction import BatchResult


class LoadedModel:
    """Extracts with a model in this process. `options` and answers are those of `gliner_bento.client.Client`.

    The model runs in threads of its own, so its methods can be called where an event loop runs, as in notebooks. It is
    closed by `close`, at the end of a `with`, when nothing refers to it any more, or when the process ends. Raises
    `NotReady` after that.
    """

    def __init__(self, settings: Settings) -> None:
        """Load the model; takes seconds. Raises `StartupError`, `ModelError` included."""
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        thread = Thread(target=self._loop.run_forever, name="loaded-model", daemon=True)
        thread.start()
        self._finalizer = weakref.finalize(self, _close, self._loop, self._stack, thread)
        try:
            self._client = self._wait(self._stack.enter_async_context(in_process(settings)))
        except BaseException:
            self.close()
            raise

    def extract(self, text: str, labels: Labels | None = None, **options: Any) -> ExtractAnswer:
        """As `Client.extract`."""
        answer: ExtractAnswer = self._wait(self._client.extract(text, labels, **options))
        return answer

    async def aextract(self, text: str, labels: Labels | None = None, **options: Any) -> ExtractAnswer:
        """As `extract`, for `await`: other tasks of the event loop run meanwhile."""
        answer: ExtractAnswer = await asyncio.wrap_future(self._submit(self._client.extract(text, labels, **options)))
        return answer

    def extract_batch(self, texts: Sequence[str], labels: Labels | None = None, **options: Any) -> ExtractBatchAnswer:
        """As `Client.extract_batch`."""
        answer: ExtractBatchAnswer = self._wait(self._client.extract_batch(texts, labels, **options))
        return answer

    def extract_many(
        self, texts: Iterable[Text], labels: Labels | None = None, **options: Any
    ) -> Iterator[BatchResult]:
        """As `Client.extract_many`."""
        results = self._client.extract_many(texts, labels, **options)
        try:
            while (result := self._wait(anext(results, None))) is not None:
                yield result
        finally:
            if self._finalizer.alive:
                self._wait(results.aclose())

    def model(self) -> ModelCard:
        """As `Client.model`."""
        card: ModelCard = self._wait(self._client.model())
        return card

    def close(self) -> None:
        """Stop the model's threads, and free its memory."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, call: Any) -> Any:
        if not self._finalizer.alive:
            call.close()
            raise NotReady("the model is closed")
        return asyncio.run_coroutine_threadsafe(_awaited(call), self._loop)

    def _wait(self, call: Any) -> Any:
        return self._submit(call).result()


async def _awaited(call: Any) -> Any:
    return await call


def _close(loop: asyncio.AbstractEventLoop, stack: AsyncExitStack, thread: Thread) -> None:
    """Close the model and end its loop."""
    if current_thread() is thread:  # garbage collection runs in any thread; this one cannot wait for itself
        Thread(target=_close, args=(loop, stack, thread)).start()
        return
    with suppress(RuntimeError):  # when the process ends, no thread can wait for running requests: they end with it
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def load(model: str | None = None, **settings: Any) -> LoadedModel:
    """The model of `gliner_bento.load`."""
    return LoadedModel(Settings.load(({"model": model} if model else {}) | settings))

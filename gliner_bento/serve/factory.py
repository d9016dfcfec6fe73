"""GLiNERFactory, serve and shutdown: gliner.serve's ways to start a server from Python."""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from typing import Any

from typing_extensions import Self

from gliner_bento.serve.backends import Backend, start
from gliner_bento.serve.client import Answer, Labels, parameters_of, payloads
from gliner_bento.serve.config import GLiNERServeConfig

_running: list[Handle] = []


class Prediction:
    """A future answer: `result()` or `await` waits for it."""

    def __init__(self, future: Future[Answer]) -> None:
        self._future = future

    def result(self, timeout_s: float | None = None) -> Answer:
        """Wait for the answer. Raises `GLiNERClientError`, or TimeoutError."""
        return self._future.result(timeout_s)

    def __await__(self) -> Generator[Any, None, Answer]:
        return asyncio.wrap_future(self._future).__await__()


class RemotePredict:
    """`handle.predict`: `remote` has the arguments of `GLiNERClient.predict`, for one text."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def remote(self, text: str, labels: Labels, *options: Any, **named: Any) -> Prediction:
        """Start one prediction."""
        return Prediction(self._backend.submit(payloads(text, labels, *options, **named)[0]))


class Handle:
    """A running server, as `serve` returns it."""

    def __init__(self, backend: Backend) -> None:
        self.predict = RemotePredict(backend)
        self._backend = backend
        _running.append(self)

    def wait_and_set(self, ended: threading.Event) -> None:
        """Wait for the server to end, and set `ended`."""
        self._backend.wait()
        ended.set()

    def shutdown(self) -> None:
        """End the server, after the running requests. Further calls do nothing."""
        if self in _running:
            _running.remove(self)
            self._backend.close()


def serve(config: GLiNERServeConfig, blocking: bool = False, *, in_process: bool = False) -> Handle:
    """Start a server on `config.http_port` of the loopback address, and return when it is ready.

    blocking: return when the server has ended; SIGINT and SIGTERM end it. in_process: load the model in this process,
    without HTTP.
    Raises `SettingsError` (a ValueError) for a wrong field, and RuntimeError if the server ends before it is ready.
    """
    handle = Handle(start(config, in_process=in_process))
    if blocking:
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        threading.Thread(target=handle.wait_and_set, args=(stopped,), daemon=True).start()
        stopped.wait()
        handle.shutdown()
    return handle


def shutdown() -> None:
    """End every server that this process has started."""
    for handle in list(_running):
        handle.shutdown()


atexit.register(shutdown)


class GLiNERFactory:
    """Starts a server, and predicts with it.

    config: instead of `model` and the other fields of `GLiNERServeConfig`. in_process: load the model in this process,
    for scripts and notebooks; no port is opened.

        with GLiNERFactory(model="urchade/gliner_small-v2.1") as llm:
            print(llm.predict("John works at Google", ["person", "organization"]))
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        config: GLiNERServeConfig | None = None,
        in_process: bool = False,
        **kwargs: Any,
    ) -> None:
        if config is not None and (model is not None or kwargs):
            raise ValueError("Pass either `config` or `model`/kwargs, not both.")
        if config is None:
            if model is None:
                raise ValueError("Must provide either `model` or `config`.")
            config = GLiNERServeConfig(model=model, **kwargs)
        self.config = config
        self._handle = serve(config, in_process=in_process)

    @property
    def handle(self) -> Handle:
        """For calls that do not wait: `handle.predict.remote(text, labels)`."""
        return self._handle

    def predict(
        self,
        texts: str | Sequence[str],
        labels: Labels,
        relations: list[str] | None = None,
        threshold: float | None = None,
        relation_threshold: float | None = None,
        flat_ner: bool = True,
        multi_label: bool = False,
        adapter_id: str | None = None,
    ) -> Any:
        """A dict for a text; a list of dicts for a list of texts, which are sent concurrently."""
        started = self._started(
            texts, labels, relations, threshold, relation_threshold, flat_ner, multi_label, adapter_id
        )
        answers = [future.result() for future in started]
        return answers[0] if isinstance(texts, str) else answers

    @parameters_of(predict)
    async def predict_async(self, texts: str | Sequence[str], *arguments: Any, **named: Any) -> Any:
        """Like `predict`, without blocking the event loop."""
        answers = await asyncio.gather(*self._started(texts, *arguments, **named))
        return answers[0] if isinstance(texts, str) else answers

    def shutdown(self) -> None:
        """End the server. Further calls do nothing."""
        self._handle.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _started(self, texts: str | Sequence[str], *arguments: Any, **named: Any) -> list[Prediction]:
        return [self._handle.predict.remote(**body) for body in payloads(texts, *arguments, **named)]

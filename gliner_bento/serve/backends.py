"""The backends of `GLiNERFactory`: a server that it starts, or the model in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import httpx

from gliner_bento.process.port import check_port
from gliner_bento.serve.client import Answer, GLiNERClient, GLiNERClientError
from gliner_bento.serve.config import GLiNERServeConfig
from gliner_bento.settings import Settings

HOST = "127.0.0.1"
_POLL_S = 0.1
_END_S = 60.0


class Backend(Protocol):
    """Answers requests until it is closed."""

    def submit(self, payload: dict[str, Any]) -> Future[Answer]:
        """Send one request; returns a future for the answer, which may raise `GLiNERClientError`."""

    def wait(self) -> None:
        """Return when the backend has ended."""

    def close(self) -> None:
        """End the backend; further calls do nothing."""


class Service:
    """The `Backend` that is `gliner-bento serve` as a child process. The constructor returns when the server is ready.

    Raises RuntimeError if the server ends before that, `SettingsError` for a wrong field or a port that is taken.
    """

    def __init__(self, config: GLiNERServeConfig) -> None:
        given = config.settings()
        settings = Settings.load(given)
        check_port(HOST, config.http_port)
        command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--host", HOST, "--port", str(config.http_port)]
        command += [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        command += ["--backend", "ray", "--ray-address", config.ray_address] if config.ray_address else []
        self._process = subprocess.Popen(command)
        url = f"http://{HOST}:{config.http_port}"
        self._client = GLiNERClient(url, config.route_prefix, timeout=settings.request_timeout_s + _END_S)
        self._pool = ThreadPoolExecutor(self._client.max_concurrency, thread_name_prefix="gliner-client")
        try:
            while not _answers(f"{url}/readyz"):
                if (code := self._process.poll()) is not None:
                    raise RuntimeError(f"the server ended with exit code {code}; its last line says why")
                time.sleep(_POLL_S)
        except BaseException:
            self.close()
            raise

    def submit(self, payload: dict[str, Any]) -> Future[Answer]:
        return self._pool.submit(self._client.post, payload)

    def wait(self) -> None:
        self._process.wait()

    def close(self) -> None:
        """See `Backend`. Requests that run are answered first."""
        self._pool.shutdown()
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class InProcess:
    """The `Backend` that is the model in this process, without a socket, on a thread with an event loop. Raises what
    loading the model raises."""

    def __init__(self, config: GLiNERServeConfig) -> None:
        settings = Settings.load(config.settings())
        if settings.num_instances > 1:
            raise ValueError("num_replicas: in_process is one process; leave in_process out, or num_replicas")
        self._loaded: Future[None] = Future()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(settings),), daemon=True)
        self._thread.start()
        self._loaded.result()

    async def _serve(self, settings: Settings) -> None:
        from gliner_bento.process.in_process import URL, transport  # noqa: PLC0415  # loads a model library

        try:
            async with transport(settings, "gliner_serve") as calls, httpx.AsyncClient(transport=calls) as self._http:
                self._url = URL + settings.formats["route_prefix"]
                self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
                self._slots = asyncio.Semaphore(2 * settings.max_batch_size)  # more would only wait in the queue
                self._loaded.set_result(None)
                await self._closing.wait()
                await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        except BaseException as error:
            if self._loaded.done():
                raise
            self._loaded.set_exception(error)

    def submit(self, payload: dict[str, Any]) -> Future[Answer]:
        if self._ended.is_set():
            raise GLiNERClientError("shut down")
        return asyncio.run_coroutine_threadsafe(self._answer(payload), self._loop)

    async def _answer(self, payload: dict[str, Any]) -> Answer:
        async with self._slots:
            response = await self._http.post(self._url, json=payload, timeout=None)
        if response.is_error:
            raise GLiNERClientError(f"{response.status_code}: {response.text}", response.status_code)
        return dict(response.json())

    def wait(self) -> None:
        self._ended.wait()

    def close(self) -> None:
        """See `Backend`. Requests that run are answered first."""
        if not self._ended.is_set():
            self._ended.set()
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def start(config: GLiNERServeConfig, *, in_process: bool) -> Backend:
    """Start the backend of a configuration; returns when it is ready."""
    return InProcess(config) if in_process else Service(config)

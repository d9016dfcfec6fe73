"""What answers a factory's predictions: a server that it starts, or the model in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

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
        """The answer of one request, later. It raises `GLiNERClientError`."""

    def wait(self) -> None:
        """Return when it has ended."""

    def close(self) -> None:
        """End it; more calls do nothing."""


class Service:
    """`gliner-bento serve` as a child process. Returns when it is ready; raises RuntimeError if it ends before.

    Raises `SettingsError` for a wrong field or a port that is taken.
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
        """See `Backend`."""
        return self._pool.submit(self._client.post, payload)

    def wait(self) -> None:
        """See `Backend`."""
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
    """The model in this process, without HTTP: the same gateway over the same replica, on a thread with an event loop.

    Raises what the model's loading raises.
    """

    def __init__(self, config: GLiNERServeConfig) -> None:
        from gliner_bento.gateway.gateway import Gateway  # noqa: PLC0415
        from gliner_bento.gateway.options import GatewayOptions  # noqa: PLC0415
        from gliner_bento.replicas.local import LocalReplica  # noqa: PLC0415  # loads a model library

        settings = Settings.load(config.settings())
        if settings.num_instances > 1:
            raise ValueError("num_replicas: in_process is one process; leave in_process out, or num_replicas")
        self._replica = LocalReplica.load(settings)
        self._gateway = Gateway(self._replica, settings.view(GatewayOptions))
        self._loop = asyncio.new_event_loop()
        self._turns = asyncio.Semaphore(2 * settings.max_batch_size)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gliner-bento", daemon=True)
        self._thread.start()

    def submit(self, payload: dict[str, Any]) -> Future[Answer]:
        """See `Backend`."""
        if self._ended.is_set():
            raise GLiNERClientError("shut down")
        return asyncio.run_coroutine_threadsafe(self._answer(payload), self._loop)

    async def _answer(self, payload: dict[str, Any]) -> Answer:
        """As over HTTP. As many run concurrently as fill two batches, so that none waits beyond its deadline."""
        import msgspec  # noqa: PLC0415
        from pydantic import ValidationError  # noqa: PLC0415

        from gliner_bento.errors import GLiNERBentoError  # noqa: PLC0415
        from gliner_bento.gateway.compat.gliner_serve import GLiNERServeRequest, predict  # noqa: PLC0415
        from gliner_bento.gateway.validation import from_model  # noqa: PLC0415

        try:
            async with self._turns:
                body, _ = await predict(self._gateway, GLiNERServeRequest.model_validate(payload))
        except ValidationError as invalid:
            error = from_model(invalid, GLiNERServeRequest)
            raise GLiNERClientError(f"{error.code}: {error}") from invalid
        except GLiNERBentoError as error:
            raise GLiNERClientError(f"{error.code}: {error}") from error
        return dict(msgspec.to_builtins(body, enc_hook=list))

    def wait(self) -> None:
        """See `Backend`."""
        self._ended.wait()

    def close(self) -> None:
        """See `Backend`. Requests that run are answered first."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._replica.drain(_END_S)
        self._replica.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def start(config: GLiNERServeConfig, *, in_process: bool) -> Backend:
    """The backend of a configuration, ready."""
    return InProcess(config) if in_process else Service(config)

"""The server in this process, with the bundled model and without a socket: the bento, and the plain ASGI app."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from on_a_socket import address_of, in_this_loop
from processes import server_of
from saved_adapters import MAX_ADAPTER_BYTES, MAX_DISK_ADAPTERS, save_adapters
from starlette.applications import Starlette

from benchmark.server import Server

os.environ["GLINER_DTYPE"] = "float32"
os.environ["GLINER_MAX_TEXT_CHARS"] = "20000"
os.environ["GLINER_REQUEST_TIMEOUT_S"] = "300"  # a slow machine is no failure
os.environ["GLINER_MAX_QUEUE_WAIT_S"] = "300"
os.environ["GLINER_ENABLE_MCP"] = str(find_spec("mcp") is not None)
os.environ["GLINER_REDACTION_KEY"] = "a-key-of-the-tests-with-40-characters-xx"  # no file in the home folder


class Service:
    """Sends requests to an ASGI app, on the one event loop that it was started on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient, app: Starlette) -> None:
        self.loop = loop
        self.client = client
        self.app = app

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        return self.loop.run_until_complete(self.client.request(method, path, **kwargs))

    def extract(self, **body: Any) -> httpx.Response:
        return self.request("POST", "/v1/extract", json=body)

    def on_a_socket(self, call: Callable[[str], Any]) -> Any:
        """`call(url)` in a thread, for clients with a transport of their own."""

        async def served() -> Any:
            async with in_this_loop(self.app) as server:
                host, port = address_of(server)
                return await asyncio.to_thread(call, f"http://{host}:{port}")

        return self.loop.run_until_complete(served())

    def gather(self, *calls: Callable[[httpx.AsyncClient], Any]) -> list[Any]:
        """Make concurrent calls."""

        async def all_of() -> list[Any]:
            return await asyncio.gather(*(call(self.client) for call in calls))

        return self.loop.run_until_complete(all_of())


def bento() -> Starlette:
    """The gateway and the runner as BentoML joins them."""
    from service import GLiNERService

    return GLiNERService.to_asgi()


def plain() -> Starlette:
    """The gateway over a replica, without BentoML."""
    from gliner_bento.asgi import create_app

    return create_app()


APPS: dict[str, Callable[[], Starlette]] = {"bento": bento, "plain": plain}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bento_only: a long test, which runs against one app")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The same tests against both apps."""
    if "service" in metafunc.fixturenames:
        kinds = ["bento"] if metafunc.definition.get_closest_marker("bento_only") else APPS
        metafunc.parametrize("service", kinds, indirect=True, scope="module")


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[str], Service]]:
    """Each app, started once per process when it is first used: BentoML cannot start a service twice."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(serving(APPS[kind]())))


@pytest.fixture(scope="module")
def service(running: Callable[[str], Service], request: pytest.FixtureRequest) -> Service:
    return running(request.param)


@contextmanager
def serving(app: Starlette) -> Iterator[Service]:
    loop = asyncio.new_event_loop()
    started, stop = asyncio.Event(), asyncio.Event()

    async def lifespan() -> None:
        async with app.router.lifespan_context(app):
            started.set()
            await stop.wait()

    life = loop.create_task(lifespan())
    loop.run_until_complete(asyncio.wait([life, loop.create_task(started.wait())], return_when="FIRST_COMPLETED"))
    if life.done():
        life.result()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service", timeout=300)
    yield Service(loop, client, app)
    loop.run_until_complete(client.aclose())
    stop.set()
    loop.run_until_complete(life)
    loop.close()


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of adapters by their names."""
    return save_adapters(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def own_servers(adapters: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """The server of `own_server`, started again if a test has ended it."""
    servers: list[Server] = []
    with ExitStack() as stack:

        def running_one() -> Server:
            if not servers or not psutil.pid_exists(servers[-1].pid):
                folder = tmp_path_factory.mktemp("server")
                shutil.copytree(adapters["two"], folder / "root" / "own")
                shutil.copytree(adapters["one"], folder / "root" / "teams" / "b")
                settings = {"enable_polylora": True, "polylora_max_rank": 16, "max_device_adapters": 2}
                settings |= {"adapter_root": folder / "root", "disk_cache_dir": folder / "cache"}
                settings |= {"max_disk_adapters": MAX_DISK_ADAPTERS, "max_adapter_bytes": MAX_ADAPTER_BYTES}
                servers.append(stack.enter_context(server_of(folder / "log", warmup_iterations=0, **settings)))
            return servers[-1]

        yield running_one


@pytest.fixture
def own_server(own_servers: Callable[[], Server]) -> Server:
    """A server in processes of its own, with adapters of its operator: `own`, and `teams/b` to be named."""
    return own_servers()

"""What we use of BentoML, circus and uvicorn without being promised it, by name: an upgrade that removes it fails here.

What is patched, and why, is in CONTRIBUTING.md ("Patches").
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT

NAMES = re.findall(
    r"\S+",
    """
bentoml._internal.log:_component_name.cache_clear
bentoml:Service.add_asgi_middleware
bentoml:Service.all_services
bentoml:Service.bento
bentoml:Service.mount_asgi_app
bentoml:Service.on_load_bento
circus.arbiter:Arbiter._exclusive_running_command
circus.arbiter:Arbiter._restarting
circus.arbiter:Arbiter.manage_watchers
circus.client:make_json
circus.controller:Controller.arbiter
circus.controller:Controller.dispatch
circus.controller:Controller.loop
circus.exc:ConflictError
circus.sighandler:SysHandler.controller
circus.sighandler:SysHandler.handle_hup
circus.sighandler:SysHandler.quit
circus.sockets:CircusSocket.listen
tornado.platform.asyncio:AsyncIOLoop.asyncio_loop
uvicorn.config:Config.http
uvicorn.config:HTTP_PROTOCOLS
uvicorn.middleware.proxy_headers:ProxyHeadersMiddleware.app
uvicorn.middleware.proxy_headers:ProxyHeadersMiddleware.trusted_hosts
uvicorn.middleware.proxy_headers:_TrustedHosts.__contains__
uvicorn.middleware.proxy_headers:_TrustedHosts.get_trusted_client_address
uvicorn.protocols.http.flow_control:FlowControl.read_paused
uvicorn.protocols.http.flow_control:FlowControl.write_paused
uvicorn.protocols.http.httptools_impl:STATUS_LINE
uvicorn.server:ServerState.default_headers
""",
)
"""Each as module:name. An attribute of a class is one that it has, or gives its instances."""

PROTOCOL = re.findall(
    r"\S+",
    """
app client connection_lost connection_made connections cycle data_received flow headers loop on_body on_header
on_headers_complete on_message_begin on_message_complete on_response_complete parser pause_writing pipeline
resume_writing server_state shutdown transport url _start_asgi_task _unset_keepalive_if_required
""",
)
"""Of uvicorn's HttpToolsProtocol, the base of `HttpProtocol`."""

CYCLE = re.findall(
    r"\S+",
    """
body disconnected keep_alive message_event more_body response_complete response_started scope
waiting_for_100_continue
""",
)
"""Of uvicorn's RequestResponseCycle."""

_HTTP = "uvicorn.protocols.http.httptools_impl"
ALL = [
    *NAMES,
    *(f"{_HTTP}:HttpToolsProtocol.{name}" for name in PROTOCOL),
    *(f"{_HTTP}:RequestResponseCycle.{name}" for name in CYCLE),
]


def of_instances(owner: type) -> set[str]:
    """Attributes that a class declares, or sets of `self` in its methods."""
    found: set[str] = set()
    for base in owner.__mro__[:-1]:
        found |= {*getattr(base, "__annotations__", {}), *getattr(base, "__slots__", ())}
        try:
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):  # of C, or without a file
            continue
        found |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        }
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ALL)
def test_what_we_use_of_the_frame_is_there(name: str) -> None:
    module, _, path = name.partition(":")
    owner: Any = importlib.import_module(module)
    for part in path.split("."):
        is_there = hasattr(owner, part) or (isinstance(owner, type) and part in of_instances(owner))
        assert is_there, f"{name} is gone; tests/unit/process/test_frame.py says who uses it"
        owner = getattr(owner, part, None)


def test_a_name_that_an_upgrade_removed_fails() -> None:
    with pytest.raises(AssertionError, match="_restarted is gone"):
        test_what_we_use_of_the_frame_is_there("circus.arbiter:Arbiter._restarted")


def test_uvicorn_takes_its_default_protocol_by_the_name_that_we_replace() -> None:
    from uvicorn.config import HTTP_PROTOCOLS, Config

    assert "auto" in HTTP_PROTOCOLS
    assert Config("app").http == "auto"


def test_the_loggers_that_we_filter_write() -> None:
    from _bentoml_impl.server import serving
    from bentoml._internal.server import http_app
    from uvicorn import config

    assert (serving.logger.name, http_app.logger.name) == ("bentoml.serve", "bentoml._internal.server.http_app")
    assert "uvicorn.access" in config.LOGGING_CONFIG["loggers"]


def test_every_private_name_of_the_frame_that_a_file_uses_is_listed() -> None:
    """In the files that know BentoML, circus or uvicorn: `owner._name`, where owner is not this project's own."""
    listed = {name.rpartition(".")[2] for name in ALL}
    own = re.compile(r"def (_\w+)|^ *(?:self\.)?(_\w+)(?::[^=]+)? = |^from \S+ import .*?(_\w+)", re.MULTILINE)
    missing = []
    for root in ("gliner_bento", "runners"):
        for file in (PROJECT_ROOT / root).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            if re.search(r"^\s*(?:import|from) (?:bentoml|circus|tornado|uvicorn)\b", text, re.MULTILINE):
                mine = {name for found in own.findall(text) for name in found}
                used = set(re.findall(r"(?:\w|\))\.(_[a-z]\w+)\b", text))
                missing += [f"{file.name}: {name}" for name in sorted(used - mine - listed)]
    assert missing == []

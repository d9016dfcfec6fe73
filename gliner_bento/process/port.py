"""Checks the server's address before anything is loaded: the port must be free and in range, because the HTTP servers
bind it late; and an address that others can reach needs API keys or `allow_anonymous`. Closes the port while the server
ends, because BentoML keeps it open until the end."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

from gliner_bento.process.exits import exit_with
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError

_MAX_PORT = 65535


def check_port(host: str, port: int) -> None:
    """Raise `SettingsError` if a server cannot listen on `port` of the address `host`. 0 means any free port."""
    advice = "choose another one with --port (PORT= of make serve)"
    if not 0 <= port <= _MAX_PORT:
        raise SettingsError(f"port {port}: must be between 1 and {_MAX_PORT}; {advice}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # the rest repeats the address
        raise SettingsError(f"port {port} on {host}: {reason}; {advice}") from None


def check_access(host: str, settings: Settings) -> None:
    """Raise `SettingsError` if others can reach the address and there are neither API keys nor `allow_anonymous`."""
    if not (settings.api_keys or settings.allow_anonymous or _is_loopback(host)):
        raise SettingsError(
            f"address {host}: others can reach it, and there are no API keys: set api_keys (gliner-bento keys new NAME "
            "makes a key), or allow_anonymous to answer anyone"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address_or_exit(command: str, settings: Settings, default_host: str) -> None:
    """Check the address in the arguments of `command` (uvicorn, bentoml), if this process runs `command`; exit with
    one line if the address is not usable. default_host: the address if the arguments have none."""
    import click  # noqa: PLC0415  # of the extra serve

    context = click.get_current_context(silent=True)
    if context is None or command not in context.command_path:
        return
    given = context.params
    if given.get("fd") or given.get("uds"):
        return
    host = given.get("host") or default_host
    try:
        if given.get("port") is not None:
            check_port(host, given["port"])
        check_access(host, settings)
    except SettingsError as error:
        exit_with(str(error))


def listen_when_ready() -> None:
    """Make circus, which opens the sockets of BentoML's processes, bind them only. Each process listens once it can
    answer; until then, connections are refused, instead of waiting without an answer while it imports its modules."""
    from circus.sockets import CircusSocket  # noqa: PLC0415

    CircusSocket.listen = _reserve


def _reserve(bound: socket.socket, _backlog: int = 0) -> None:
    """Replaces `CircusSocket.listen`. Linux lets another socket bind the address of one that does not listen, unless
    either is without SO_REUSEADDR."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def allow_next_server() -> None:
    """Undo `_reserve` for the sockets that this process is about to listen on. Without the option, connections that the
    server has closed (TIME_WAIT) keep the next server from listening for a minute. Ignores errors."""
    for inet in _internet_sockets():
        with suppress(OSError):
            inet.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def refuse_connections(port: int | None) -> None:
    """Stop listening on a TCP port, in all processes that share the socket with this one. Ignores errors. None: do
    nothing."""
    for inet in _internet_sockets():
        with suppress(OSError):
            if inet.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and inet.getsockname()[1] == port:
                inet.shutdown(socket.SHUT_RD)


def _internet_sockets() -> Iterator[socket.socket]:
    """The process's sockets of IPv4 and IPv6, which stay open."""
    for descriptor in map(int, os.listdir("/dev/fd")):
        try:
            candidate = socket.socket(fileno=descriptor)
        except OSError:  # no socket
            continue
        try:
            if candidate.family in (socket.AF_INET, socket.AF_INET6):
                yield candidate
        finally:
            candidate.detach()

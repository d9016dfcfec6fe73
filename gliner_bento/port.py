"""The server's port: checked before anything is loaded, because the servers bind it late and BentoML takes one that is
out of range; and refused while the server ends, because BentoML keeps it open until then."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import click

from gliner_bento.configuration import SettingsError
from gliner_bento.exits import exit_with

_MAX_PORT = 65535


def check_port(host: str, port: int) -> None:
    """Raise `SettingsError` if a server could not listen on `port` of the address `host`; 0 is any free port."""
    advice = "choose another one with --port (PORT= of make serve)"
    if not 0 <= port <= _MAX_PORT:
        raise SettingsError(f"port {port}: must be between 1 and {_MAX_PORT}; {advice}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # the rest repeats the address
        raise SettingsError(f"port {port} on {host}: {reason}; {advice}") from None


def check_port_or_exit(command: str) -> None:
    """Check the port that `command` (uvicorn, bentoml) was given, if it runs this process; exit with one line."""
    context = click.get_current_context(silent=True)
    if context is None or command not in context.command_path:
        return
    given = context.params
    if given.get("port") is None or given.get("fd") or given.get("uds"):
        return
    try:
        check_port(given.get("host") or "0.0.0.0", given["port"])
    except SettingsError as error:
        exit_with(str(error))


def refuse_connections(port: int) -> None:
    """Stop listening on a TCP port in all processes that share this process's socket; best effort."""
    for number in map(int, os.listdir("/dev/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as candidate:
            listening = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            inet = candidate.family in (socket.AF_INET, socket.AF_INET6)
            if listening and inet and candidate.getsockname()[1] == port:
                candidate.shutdown(socket.SHUT_RD)

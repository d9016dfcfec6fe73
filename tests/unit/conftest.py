"""Unit tests start from the defaults: other tests of the session set settings in the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_settings_in_environment(monkeypatch, no_level_of_logs):
    for name in list(os.environ):
        if name.startswith("GLINER_"):
            monkeypatch.delenv(name)


@pytest.fixture
def executed(monkeypatch):
    """What `serve` would become: program, arguments and environment, instead of this process."""
    calls = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    return calls


@pytest.fixture
def commands_call(monkeypatch) -> Callable[..., None]:
    """Lets commands call the client that a function makes of their options and flags; by default, a gateway without a
    model."""

    def gateway(*_: Any) -> Any:
        from tests.unit.bulk.bulk_program import client

        return client()

    def call(make: Callable[..., Any] = gateway) -> None:
        @asynccontextmanager
        async def clients(options, flags, *_):
            yield [make(options, flags)]

        monkeypatch.setattr("gliner_bento.cli.backend.clients", clients)

    return call


@pytest.fixture
def url_of_nobody() -> Iterator[str]:
    """A URL where no server listens, nor can: its port is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def settings_file(tmp_path):
    """Writes a file of settings; returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "own.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write

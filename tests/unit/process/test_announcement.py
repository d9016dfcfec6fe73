"""What a server writes when it is ready."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex

import pytest

from gliner_bento.process import announcement as module
from gliner_bento.process.announcement import ADDRESS, announce_when, announcement, url_of
from gliner_bento.settings import Settings

OPTIONS = {"http": {"host": "127.0.0.1", "port": 3000}}
PAGES = {"playground": "/playground", "docs": "/docs", "API": "/"}


@pytest.mark.parametrize(
    ("arguments", "options", "url"),
    [
        ({}, {}, "http://127.0.0.1:3000"),
        ({"host": "0.0.0.0", "port": 8080}, {}, "http://localhost:8080"),
        ({"host": "::1", "ssl_certfile": "cert.pem"}, {}, "https://[::1]:3000"),
        ({}, {"ssl": {"enabled": True}}, "https://127.0.0.1:3000"),
        ({"port": 0}, {}, None),
        ({"uds": "/tmp/socket"}, {}, None),
    ],
)
def test_the_url_is_the_one_to_open(arguments, options, url):
    assert url_of(arguments, OPTIONS | options) == url


def test_the_lines_have_each_page_and_a_request_that_can_be_pasted():
    first, *rows = announcement("http://host:1", PAGES, needs_key=True).splitlines()
    assert first == "gliner-bento: ready on http://host:1"
    shown = dict(row.split(maxsplit=1) for row in rows)
    assert (shown["playground"], shown["docs"]) == ("http://host:1/playground", "http://host:1/docs")
    words = shlex.split(shown["try"])
    assert words[:3] == ["curl", "-s", "http://host:1/v1/extract"]
    assert "Authorization: Bearer YOUR_KEY" in words
    assert json.loads(words[-1])["labels"] == ["person", "city"]


def test_without_a_built_site_the_lines_say_where_the_docs_are():
    assert "docs/index.md" in announcement("http://host:1", {"API": "/"}, needs_key=False)


@pytest.fixture
def ready_server(monkeypatch, tmp_path):
    """Announce a server that is ready when it has been asked three times."""
    monkeypatch.setenv(ADDRESS, "http://host:1")
    monkeypatch.setattr(module, "_POLL_S", 0.0)
    asked = []

    async def ready() -> bool:
        asked.append(1)
        return len(asked) >= 3

    def run(**settings: str) -> int:
        asyncio.run(announce_when(ready, PAGES, Settings(**settings), tmp_path))
        return len(asked)

    return run


def test_a_server_is_announced_once_and_only_when_it_is_ready(ready_server, capsys, caplog):
    caplog.set_level(logging.INFO)
    assert ready_server() == 3
    assert capsys.readouterr().err.startswith("gliner-bento: ready on http://host:1\n")
    ready_server()  # another process of it
    assert capsys.readouterr().err == ""


def test_a_log_of_json_has_it_as_one_record(ready_server, capsys, caplog):
    caplog.set_level(logging.INFO)
    ready_server(log_format="json")
    assert capsys.readouterr().err == ""
    (record,) = caplog.records
    assert record.getMessage() == "ready on http://host:1"
    assert record.fields["playground"] == "http://host:1/playground"


def test_a_log_of_warnings_has_it_not(ready_server, capsys, caplog):
    caplog.set_level(logging.WARNING, "gliner_bento")
    ready_server()
    assert capsys.readouterr().err == ""

"""A served bento with API keys: its clients, a key that is withdrawn, and how it closes its door on others."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import bentoml
import httpx
import patient
import pytest
import yaml
from chromium import chromium, executable
from quick import ENVIRONMENT
from waiting import wait_until

from benchmark.server import running_server
from gliner_bento.client import Client
from gliner_bento.client.client import KEY_VARIABLE
from gliner_bento.errors import Forbidden, Unauthorized
from gliner_bento.settings import PROJECT_ROOT
from gliner_bento.storage.api_keys import hash_of

BODY = {"text": "Ada Lovelace lived in London.", "labels": ["person", "city"]}
KEYS = [
    {"name": "app", "sha256": hash_of("key-app")},
    {"name": "old", "sha256": hash_of("key-old")},
    {"name": "monitor", "sha256": hash_of("key-monitor"), "scopes": ["metrics"]},
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of keys."""
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    file.write_text(yaml.safe_dump(KEYS))
    return file


@pytest.fixture(scope="module")
def locked(keys: Path) -> Iterator[str]:
    """A server with these keys, as `bentoml serve` starts it in the project's folder."""
    command = [sys.executable, "-m", "bentoml", "serve", ".", "--port", "{port}"]
    env = ENVIRONMENT | {"GLINER_API_KEYS": str(keys), "GLINER_HEADER_TIMEOUT_S": "5"}
    with running_server(command, cwd=PROJECT_ROOT, log=keys.with_name("log"), env=env) as url:
        yield url


def test_the_clients_send_their_key(locked, monkeypatch):
    with Client(locked, api_key="key-app") as client:
        assert client.extract(**BODY).entities
    with bentoml.SyncHTTPClient(locked, token="key-app") as client:
        assert client.extract(**BODY)["entities"]
    monkeypatch.setenv(KEY_VARIABLE, "key-app")
    with Client(locked) as client:
        assert client.model().model == "demo"
        with pytest.raises(Forbidden, match="adapters"):
            client.adapters()
    monkeypatch.delenv(KEY_VARIABLE)
    with Client(locked) as client, pytest.raises(Unauthorized):
        client.extract(**BODY)


def test_without_a_host_it_binds_one_loopback_address(locked):
    port = httpx.URL(locked).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=10)


def test_probes_and_pages_are_open_and_metrics_have_a_scope(locked):
    patient.until_ready(locked)
    for path in ("/livez", "/healthz", "/", "/playground", "/docs.json", "/static_content/swagger-ui.css"):
        assert patient.get(locked + path).status_code == 200, path
    answers = [patient.get(f"{locked}/metrics", headers={"X-API-Key": key}) for key in ("", "key-app", "key-monitor")]
    assert [answer.status_code for answer in answers] == [401, 403, 200]


@pytest.mark.skipif(executable() is None, reason="Chromium is not installed")
def test_the_playground_asks_for_a_key_and_keeps_it_out_of_links_and_code(locked, tmp_path):
    with chromium(tmp_path) as page:
        page.open(f"{locked}/playground")
        for key, place, shown in (
            ("wrong", "#key-error", "the API key is not valid"),
            ("key-app", ".results", "Warsaw"),
        ):
            page.wait("!document.getElementById('key-form').hidden")
            page.click("#key")
            page.type(key)
            page.press("Enter", 13)
            page.wait(f"document.querySelector('{place}').innerText.includes('{shown}')")
        page.wait("document.querySelector('mark') !== null && location.hash.length > 1")
        page.click("#tab-code")
        assert "Bearer $GLINER_CLIENT_API_KEY" in page.evaluate("document.querySelector('pre').textContent")
        assert "key-app" not in page.evaluate(
            "location.href + document.body.innerText + JSON.stringify({...localStorage})"
        )


def test_a_key_that_is_withdrawn_ends_without_a_restart(locked, keys):
    def status(key):
        return patient.post(f"{locked}/v1/extract", json=BODY, headers={"X-API-Key": key}).status_code

    assert status("key-old") == 200
    keys.write_text(yaml.safe_dump([key for key in KEYS if key["name"] != "old"]))
    wait_until(lambda: status("key-old") != 200, every_s=0.2)
    assert (status("key-old"), status("key-app")) == (401, 200)


@pytest.mark.parametrize(("sent", "status"), [(b"GET /v1/mo", b"408"), (b"BAD / HTTP/1.1\r\n\r\n", b"400")])
def test_connections_have_their_limits_under_bentoml(locked, sent, status):
    url = httpx.URL(locked)
    with socket.create_connection((url.host, url.port), timeout=60) as client:
        client.sendall(sent)
        answer = b"".join(iter(lambda: client.recv(2**16), b""))
    assert answer.split()[1] == status
    assert b'{"error":{"code":' in answer

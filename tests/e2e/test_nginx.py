"""deploy/nginx in front of a real server: addresses, streams and limits."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import patient
import pytest
from waiting import wait_until

from benchmark.server import free_port
from gliner_bento.settings import PROJECT_ROOT

SITE = PROJECT_ROOT / "deploy" / "nginx" / "gliner-bento.conf"
PROGRAM = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
MAIN = """
USER daemon off; pid FOLDER/pid; error_log stderr;
events {}
http {
    access_log off; gzip on; gzip_types *;
    client_body_temp_path FOLDER/1; proxy_temp_path FOLDER/2; fastcgi_temp_path FOLDER/3;
    uwsgi_temp_path FOLDER/4; scgi_temp_path FOLDER/5;
    include site.conf;
}
"""

pytestmark = pytest.mark.skipif(not PROGRAM, reason="needs nginx, a package of Debian")


@pytest.fixture(scope="module")
def proxy(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address and port of nginx with our site."""
    folder = tmp_path_factory.mktemp("nginx")
    address = f"127.0.0.1:{free_port()}"
    site = SITE.read_text(encoding="utf-8").replace("127.0.0.1:3000", server.removeprefix("http://"))
    (folder / "site.conf").write_text(site.replace("listen 80;", f"listen {address};"))
    user = "" if os.geteuid() else "user root;"  # its workers write into the folder, too
    (folder / "nginx.conf").write_text(MAIN.replace("FOLDER", str(folder)).replace("USER", user))
    command = [str(PROGRAM), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as running:
        try:
            answers(address)
            yield address
        finally:
            running.terminate()


def answers(address: str) -> None:
    def ready() -> bool:
        with suppress(httpx.TransportError):
            return patient.until_ready(f"http://{address}").is_success
        return False

    wait_until(ready, every_s=0.05)


def test_a_client_has_its_own_address_and_cannot_invent_one(proxy: str, server_log: Path):
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=f"http://{proxy}", transport=transport, timeout=60) as client:
        headers = {"X-Forwarded-For": "203.0.113.7", "X-Request-ID": "through-nginx"}
        answer = client.post("/v1/extract", json={"text": "Ada lived in London.", "labels": ["city"]}, headers=headers)
    assert [entity["text"] for entity in answer.json()["entities"]] == ["London"]
    assert answer.headers["X-Request-ID"] == "through-nginx"

    def lines() -> list[str]:
        return [one for one in server_log.read_text(encoding="utf-8").splitlines() if "through-nginx" in one]

    assert "tenant=127.0.0.2 " in wait_until(lines, every_s=0.05)[0]  # it is written after the answer


def test_a_line_of_a_stream_arrives_while_the_text_is_processed(proxy: str):
    """An abort reaches a request only while it runs: it would be over if nginx kept its first lines."""
    text = "Ada Lovelace lived in London. " + "It is what it is and so it was for ever. " * 20_000
    body = {"text": text, "labels": ["person", "city"], "request_id": "streamed", "timeout_ms": 600_000}
    stream = httpx.stream("POST", f"http://{proxy}/v1/extract/stream", json=body, timeout=120)
    with stream as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["entity"]["text"] == "Ada Lovelace"
        aborted = httpx.post(f"http://{proxy}/v1/requests/streamed/abort", timeout=60).json()
        *_, last = lines
    assert aborted["aborted"] is True
    assert json.loads(last)["error"]["code"] == "aborted"


@pytest.mark.parametrize(("path", "megabytes"), [("/v1/extract", 33), ("/v1/adapters/a", 257)])
def test_a_body_that_the_server_would_refuse_is_refused_before_it_is_sent(path: str, megabytes: int, proxy: str):
    connection = http.client.HTTPConnection(proxy, timeout=60)
    connection.putrequest("POST" if megabytes == 33 else "PUT", path)
    connection.putheader("Content-Length", str(megabytes << 20))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()

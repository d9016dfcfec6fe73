"""What a served bento shows of itself, beside another server of the same user: metrics, log and traces."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import patient
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from quick import ENVIRONMENT

from benchmark.server import started
from gliner_bento.settings import PROJECT_ROOT

BODY = {"text": "Bill Gates founded Microsoft in 1975.", "labels": ["person", "organization"]}
COUNTED = 'route="/v1/extract",status="200"'
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PATIENCE_S = 240.0


class Collector(ThreadingHTTPServer):
    """Receives spans over OTLP. names: of those of a trace, by its id."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.names: dict[str, set[str]] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.names.setdefault(span.trace_id.hex(), set()).add(span.name)


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.add(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@dataclass
class Observed:
    """A server that logs in JSON and exports traces. temporary: its folder for temporary files."""

    url: str
    log: Path
    temporary: Path
    collector: Collector

    def lines(self) -> list[dict]:
        """The complete lines of the log."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    log, temporary = tmp_path_factory.mktemp("server") / "log", Path(tempfile.mkdtemp(prefix="t"))  # for sockets: short
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--log-format", "json"]
    with Collector() as collector:
        env = ENVIRONMENT | {"TMPDIR": str(temporary), "OTEL_BSP_SCHEDULE_DELAY": "100"}
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}"
        with started([*command, "--enable-tracing"], cwd=PROJECT_ROOT, log=log, env=env) as server:
            yield Observed(server.url, log, temporary, collector)
        collector.shutdown()
    left = list(temporary.glob("gliner-bento-*"))
    shutil.rmtree(temporary)
    assert left == []


def test_two_servers_of_a_user_have_metrics_of_their_own(server, observed):
    """They share BENTOML_HOME, where both wrote into one folder, and a start deleted the other's files."""
    patient.post(f"{server}/v1/extract", json=BODY).raise_for_status()
    assert COUNTED not in patient.get(f"{observed.url}/metrics").text
    assert COUNTED in patient.get(f"{server}/metrics").text
    patient.post(f"{observed.url}/v1/extract", json=BODY).raise_for_status()
    give_up = time.monotonic() + PATIENCE_S
    while COUNTED not in (text := patient.get(f"{observed.url}/metrics").text):  # counted once the answer is sent
        assert time.monotonic() < give_up
    assert 'gliner_items_total{model="demo",outcome="completed"}' in text
    assert len([line for line in text.splitlines() if not line.startswith("#")]) < 500, "see docs/operations.md"
    assert list(observed.temporary.glob("gliner-bento-*/metrics/*.db"))


def test_the_log_is_json_from_the_first_line_and_has_each_request_once(observed):
    patient.post(f"{observed.url}/v1/extract", json=BODY | {"request_id": "logged"}).raise_for_status()
    give_up = time.monotonic() + PATIENCE_S
    while not (found := [line for line in observed.lines() if line.get("request_id") == "logged"]):
        assert time.monotonic() < give_up
        time.sleep(0.1)  # it is written once the answer is sent
    (line,) = found
    assert (line["logger"], line["status"], line["items"]) == ("gliner_bento.access", 200, 1)
    assert "Gates" not in observed.log.read_text()


def test_a_trace_has_the_spans_of_both_processes(observed):
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    patient.post(f"{observed.url}/v1/extract", json=BODY, headers=headers).raise_for_status()
    wanted = {"POST /v1/extract", "queue", "batch", "collate", "forward", "decode"}
    give_up = time.monotonic() + PATIENCE_S
    while observed.collector.names.get(TRACE) != wanted:
        assert time.monotonic() < give_up, observed.collector.names
        time.sleep(0.1)

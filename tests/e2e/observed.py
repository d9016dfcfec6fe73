"""What a server shows of itself beside its answers: its log, its temporary files, and the traces that it exports."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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

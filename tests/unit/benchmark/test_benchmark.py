"""The benchmark's own parts, against a small real server."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

from gliner_bento.benchmark.load import closed_loop
from gliner_bento.benchmark.report import table
from gliner_bento.benchmark.server import running_server
from gliner_bento.benchmark.workload import mixed

SERVER = textwrap.dedent(
    """
    import json, sys
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200, {})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = body["text"]
            shown = text[:1] if text[0].islower() else "?"
            status = 503 if "report" in text else 200
            self.answer(status, {"entities": [{"start": 0, "end": 1, "text": shown}]})

        def answer(self, status, body):
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """
)


@pytest.fixture
def url(tmp_path):
    with running_server(
        [sys.executable, "-c", SERVER.replace("{", "{{").replace("}", "}}"), "{port}"],
        cwd=tmp_path,
        log=tmp_path / "log",
    ) as started:
        yield started


def test_a_run_counts_answers_errors_and_wrong_answers(url):
    bodies = mixed(50)
    measured = closed_loop(url, bodies, concurrency=4, seconds=0.5)
    assert set(measured.statuses) == {"200", "503"}
    assert measured.requests == sum(measured.statuses.values())
    assert measured.wrong > 0, "some texts start with a capital, and the server lies about these"
    assert measured.p50_ms <= measured.p95_ms <= measured.p99_ms


def test_a_run_is_told_as_a_table(url, tmp_path):
    measured = closed_loop(url, mixed(5), concurrency=1, seconds=0.1)
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"runs": [measured.as_data()]}))
    assert f"{measured.requests_per_s:.1f}" in table(path)


def test_the_workload_is_the_same_for_the_same_seed():
    assert mixed(20, seed=3) == mixed(20, seed=3)
    assert mixed(20, seed=3) != mixed(20, seed=4)
    lengths = [len(body["text"].split()) for body in mixed(500)]
    assert min(lengths) < 12
    assert max(lengths) > 200


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit('out of order')"]
    with pytest.raises(RuntimeError, match="out of order"), running_server(command, cwd=tmp_path, log=tmp_path / "log"):
        pass

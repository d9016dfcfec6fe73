"""Faults of `make chaos` for commands: `bulk` is killed, and `redact` gets falsified answers."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from gliner_bento.cli import main
from gliner_bento.settings import PROJECT_ROOT

_NAMES = ("Ada Lovelace", "Tim Cook")
_CHUNK, _RECORDS = 50, 130  # two chunks and a part; few, because beside the load a record takes a tenth of a second
_PATIENCE_S = 300.0

Results = list[dict[str, Any]]


def kill_bulk(url: str) -> str:
    """Kill a job after its first and its second chunk. Its output must be that of a job that was not killed."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        rows = ({"id": row, "text": f"{_NAMES[row % 2]} wrote letter {row}."} for row in range(_RECORDS))
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        whole, killed = folder / "whole.jsonl", folder / "killed.jsonl"
        _ended(_bulk(url, folder, whole))
        kills = [_kill_after(done, _bulk(url, folder, killed), killed) for done in (1, _CHUNK + 1)]
        _ended(_bulk(url, folder, killed))
        if whole.read_bytes() != killed.read_bytes():
            raise AssertionError(f"bulk that was killed after {kills} records has another output")
    return f"bulk killed after {' and '.join(map(str, kills))} of {_RECORDS} records: the same bytes"


def _bulk(url: str, folder: Path, output: Path) -> subprocess.Popen[str]:
    words = ["bulk", folder / "in.jsonl", "-o", output, "--labels", "person", "--quiet", "--url", url]
    program = (
        "from gliner_bento.cli import main; from gliner_bento.files.bulk import job; "
        f"job.CHUNK_RECORDS = {_CHUNK}; raise SystemExit(main({[*map(str, words)]}))"
    )
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _in_process(*words: str | Path) -> tuple[int, str]:
    """Exit code and output of a command in this process."""
    with io.StringIO() as written, contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        return main([*map(str, words)]), written.getvalue()


def _ended(process: subprocess.Popen[str]) -> None:
    written, _ = process.communicate(timeout=_PATIENCE_S)
    if process.returncode:
        raise AssertionError(f"code {process.returncode}: {written}")


def _kill_after(records: int, process: subprocess.Popen[str], output: Path) -> int:
    """Kill the job when so many records are written; how many are."""
    checkpoint, end_s = Path(f"{output}.checkpoint"), time.monotonic() + _PATIENCE_S
    done = 0
    while done < records:
        if process.poll() is not None or time.monotonic() > end_s:
            raise AssertionError(f"bulk has ended after {done} records, before it was killed")
        time.sleep(0.01)
        with contextlib.suppress(FileNotFoundError):
            done = json.loads(checkpoint.read_text())["done"]
    process.kill()
    process.communicate()
    return int(json.loads(checkpoint.read_text())["done"])


def _entities(change: dict[str, Any]) -> Callable[[Results], Any]:
    return lambda results: [entity.update(change) for one in results for entity in one["result"]["entities"]]


def _each(**change: Any) -> Callable[[Results], Any]:
    return lambda results: [one["result"].update(change) for one in results]


LIES: dict[str, Callable[[Results], Any]] = {
    "no entities": lambda results: [one["result"].pop("entities") for one in results],
    "entities are null": _each(entities=None),
    "empty spans": _entities({"end": 0, "start": 0, "text": ""}),
    "moved spans": _entities({"start": 1, "end": 4}),
    "negative spans": _entities({"start": -3}),
    "far spans": _entities({"end": 10**6}),
    "max_entities": _each(entities=[], warnings=[{"code": "max_entities", "message": "cut"}]),
    "truncated": _each(entities=[], truncated=True, truncated_at=1),
    "neither result nor error": lambda results: [one.update(result=None) for one in results],
    "a result less": lambda results: results.pop(),
    "a result more": lambda results: results.append(results[0]),
}


def lie_to_redact(url: str) -> str:
    """Each lie must cost the copies, and nothing else; the truth must give them without the names."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        inputs = Path(name, "in")
        inputs.mkdir()
        for number, person in enumerate(_NAMES):
            (inputs / f"{number}.txt").write_text(f"{person} wrote letter {number}.")
        (inputs / "all.jsonl").write_text("".join(json.dumps({"text": f"{one} wrote."}) + "\n" for one in _NAMES * 10))
        for lie in ("", *LIES):
            copies = Path(name, lie or "truth")
            with _falsifying(url, LIES.get(lie, lambda _: None)) as liar:
                code, written = _in_process(
                    "redact", inputs, "-o", copies, "--labels", "person", "--no-patterns", "--url", liar
                )
            files = [path for path in copies.rglob("*") if path.is_file()]
            leaks = [path.name for path in files if any(one in path.read_text() for one in _NAMES)]
            if leaks or bool(code) != bool(lie) or len(files) != (0 if lie else 3):
                made = sorted(path.name for path in files)
                raise AssertionError(f"{lie or 'truth'}: code {code}, {made}, names in {leaks}: {written}")
    return f"{len(LIES)} kinds of false answers: no copy"


@contextlib.contextmanager
def _falsifying(url: str, lie: Callable[[Results], Any]) -> Iterator[str]:
    """The address of a proxy of the server that falsifies the results of its answers."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            answer = server.post(self.path, content=sent, headers={"Content-Type": "application/json"})
            content = answer.json()
            if answer.is_success:
                lie(content["results"])
            body = json.dumps(content).encode()
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with httpx.Client(base_url=url, timeout=60) as server, ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}"
        finally:
            proxy.shutdown()

"""`benchmark.server.started`: what it does with a server that does not become ready."""

from __future__ import annotations

import sys
from pathlib import Path

import patient
import pytest

from benchmark.server import STARTS, started

# Fails as often as its first argument says, with the words of its second; after that it serves its folder.
SERVER = """
import http.server, pathlib, sys
failures, words, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
starts = pathlib.Path("starts")
starts.write_text(starts.read_text() + "." if starts.exists() else ".")
if len(starts.read_text()) <= failures:
    sys.exit(words)
http.server.test(http.server.SimpleHTTPRequestHandler, port=port, bind="127.0.0.1")
"""


def command(failures: int, words: str) -> list[str]:
    return [sys.executable, "-c", SERVER, str(failures), words, "{port}"]


def test_a_server_that_found_a_port_taken_is_started_again(tmp_path: Path) -> None:
    with started(
        command(2, "OSError: Address already in use"), cwd=tmp_path, log=tmp_path / "log", ready="/"
    ) as server:
        assert patient.get(server.url + "/starts").text == "..."


@pytest.mark.parametrize(("words", "starts"), [("no model", 1), ("Address already in use", STARTS)])
def test_a_server_that_cannot_start_is_an_error_with_its_log(tmp_path: Path, words: str, starts: int) -> None:
    with (
        pytest.raises(RuntimeError, match=words),
        started(command(STARTS, words), cwd=tmp_path, log=tmp_path / "log", ready="/"),
    ):
        pass
    assert len((tmp_path / "starts").read_text()) == starts

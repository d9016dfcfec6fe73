"""`gliner-bento adapters`, and `models` of a server: what a server gets, and what is printed of its answers."""

from __future__ import annotations

import json

import pytest
from doubles.answering_server import answering

from gliner_bento import cli

CARD = {
    "id": "a", "source": "upload", "rank": 4, "targets": [], "bytes": 3_000_000, "tier": "cpu", "pinned": True,
    "uses": 7, "last_used": None,
}  # fmt: skip

MODEL = {
    "id": "pii", "model_name": "pii", "revision": None, "object": "model", "created": 0, "owned_by": "gliner-bento",
    "model_type": "token-classification", "state": "failed", "reason": "no such folder", "default": False,
    "pinned": True, "bytes": 3_000_000,
}  # fmt: skip


@pytest.fixture
def server():
    """Notes method, path and body of each request; has the adapter `a` and the model `pii` alone."""
    requests: list[tuple[str, str, bytes]] = []

    def answer(method, path, body):
        requests.append((method, path, body))
        if path.endswith("/gone"):
            return 404, {"error": {"code": "adapter_not_found", "message": "no adapter 'gone'"}}
        if method == "DELETE":
            return 204, None
        if path.startswith("/v1/models"):
            return 200, {"data": [MODEL]} if method == "GET" else MODEL
        return 200, {"adapters": [CARD]} if path == "/v1/adapters" else CARD

    with answering(answer) as url:
        yield url, requests


def test_each_action_is_a_call_of_the_api(server, capsys, tmp_path):
    url, requests = server
    (tmp_path / "a.zip").write_bytes(b"archive")
    for words in (
        ["list"],
        ["put", "a", str(tmp_path / "a.zip"), "--pinned"],
        ["put", "a", "hub:owner/name", "--revision", "v2", "--replace"],
        ["put", "a", "tenant-a", "--on-server"],
        ["pin", "a"],
        ["unpin", "a"],
        ["delete", "a"],
    ):
        assert cli.main(["adapters", *words, "--url", url]) == 0
    assert [(method, path.partition("?")[0]) for method, path, _ in requests] == [
        ("GET", "/v1/adapters"),
        *[("PUT", "/v1/adapters/a")] * 5,
        ("DELETE", "/v1/adapters/a"),
    ]
    assert "pinned=true" in requests[1][1]
    assert requests[1][2] == b"archive"
    assert json.loads(requests[2][2]) == {
        "source": "hub:owner/name", "revision": "v2", "replace": True, "preload": True,
    }  # fmt: skip
    assert json.loads(requests[3][2])["source"] == "tenant-a"
    assert "pinned=true" in requests[4][1]
    assert "pinned=false" in requests[5][1]
    written = capsys.readouterr().out.splitlines()
    assert [line.split() for line in written[:2]] == [
        ["id", "source", "rank", "MB", "tier", "pinned", "uses"],
        ["a", "upload", "4", "3.0", "cpu", "true", "7"],
    ]
    assert written[-1] == "a is deleted"


def test_the_adapters_are_those_of_the_model_that_is_named(server):
    url, requests = server
    for words in (["list"], ["pin", "a"]):
        cli.main(["adapters", *words, "--url", url, "--model-name", "pii"])
    assert ["model=pii" in path for _, path, _ in requests] == [True, True]


def test_json_is_the_answer_of_the_api(server, capsys):
    url, _ = server
    assert cli.main(["adapters", "list", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"adapters": [CARD]}


def test_what_cannot_work_is_one_line_and_code_1(server, capsys):
    url, _ = server
    for words, message in (
        (["delete", "gone", "--url", url], "adapters: no adapter 'gone'"),
        (["put", "a", "nowhere", "--url", url], "adapters: nowhere: No such file or directory"),
        (["list", "--url", "http://127.0.0.1:9"], "adapters: http://127.0.0.1:9: "),
        (["list", "--jsn"], "adapters: unknown flag --jsn; did you mean --json?"),
    ):
        assert cli.main(["adapters", *words]) == 1
        written = capsys.readouterr().err
        assert message in written
        assert written.count("\n") == 1


def test_the_models_of_a_server_are_listed_and_changed(server, capsys):
    url, requests = server
    actions = ["load", "unload", "pin", "unpin"]
    for words in (
        ["add", "pii", "gliner-pii", "--pinned"],
        *([action, "pii"] for action in actions),
        ["delete", "pii"],
    ):
        assert cli.main(["models", *words, "--url", url]) == 0
        name, row = capsys.readouterr().out.splitlines()
        assert name.split() == ["name", "state", "default", "pinned", "MB", "reason"]
        assert row.split() == ["pii", "failed", "false", "true", "3.0", "no", "such", "folder"]
    sent = [one for one in requests if one[0] != "GET"]
    assert [(method, path) for method, path, _ in sent] == [
        ("POST", "/v1/models"),
        *[("POST", f"/v1/models/pii/{action}") for action in actions],
        ("DELETE", "/v1/models/pii"),
    ]
    assert json.loads(sent[0][2]) == {"name": "pii", "source": "gliner-pii", "settings": {}, "pinned": True}
    assert cli.main(["models", "list", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": [MODEL]}
    assert cli.main(["models", "load", "gone", "--url", "http://127.0.0.1:9"]) == 1
    assert "models load: http://127.0.0.1:9: " in capsys.readouterr().err

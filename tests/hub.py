"""A hub on this machine: the part of the Hugging Face hub's HTTP API that downloads use, and its cache's layout."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from gliner_bento.settings.configuration import PROJECT_ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """Serves repositories: files by name, by repository id. It lists the files of `*/broken` and serves none, and
    the files of `*/gated` are
    for the bearer of a token.

    requests: method and path of each; tokens: those that it was sent.
    """

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.requests: list[str] = []
        self.tokens: set[str] = set()

    @property
    def endpoint(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        token = self.headers.get("Authorization")
        self.server.tokens |= {token} if token else set()
        match = re.match(r"/(api/models/)?([\w-]+/[\w-]+)(?:/(revision|tree|resolve)/([^/?]+)/?([^?]*))?", self.path)
        assert match, self.path
        api, repository, what, revision, name = match.groups()
        files = self.server.repositories.get(repository)
        if files is None:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        if repository.endswith("/gated") and not api and not token:
            return self._send(401, b"", {"X-Error-Code": "GatedRepo"})
        if revision not in (None, "main", "v1", COMMIT):
            return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if not api:
            if repository.endswith("/broken"):
                return self._send(403, b"")
            return self._send(200, files[name], {"ETag": f'"{sha1(files[name]).hexdigest()}"'})
        listed = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
        tree = [
            {"type": "file", "path": name, "size": len(content), "oid": sha1(content).hexdigest()}
            for name, content in files.items()
        ]
        answer = tree if what == "tree" else {"id": repository, "sha": COMMIT, "siblings": listed}
        return self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    do_HEAD = do_GET

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "X-Repo-Commit": COMMIT, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hub_server(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[HubServer]:
    """A hub that serves `repositories`."""
    with HubServer(repositories) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def hub_environment(endpoint: str, home: Path, *, offline: bool = False) -> dict[str, str]:
    """The environment of a process that uses that hub; huggingface_hub reads it when it is imported."""
    return os.environ | {
        "PYTHONPATH": str(PROJECT_ROOT),
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }


def cached_folder(cache_dir: Path, repo_id: str) -> Path:
    """The folder, still missing, of a repository's main branch in huggingface_hub's cache."""
    repository = cache_dir / f"models--{repo_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return repository / "snapshots" / COMMIT

"""Fuzzing: tens of thousands of odd requests, and documents; how each was answered, and which were not."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jsonschema

from gliner_bento.loadtest.machine import provenance
from reliability.document_fuzz import fuzz_documents
from reliability.fuzz_cases import Case, Cases
from reliability.fuzz_sockets import MAX_CONNECTIONS, attack
from reliability.measurement import Measurement, Target
from reliability.served import processes, serving

CONNECTIONS = 4
HUNG_S = 60.0
HONEST = {501: "not_supported", 503: "not_ready", 504: "deadline_exceeded", 507: "does_not_fit storage_full"}
"""Statuses from 500 on that say what is the case, and their codes."""
_ERROR = {"code", "message", "param", "request_id"}
_KEPT = 50
_BODY = {"text": "Tim Cook works at Apple.", "labels": ["person", "company"]}


@dataclass(frozen=True, slots=True)
class Answer:
    """status: 0 if the server closed the connection without an answer."""

    status: int
    content: bytes = b""


class OwnErrors:
    """The error bodies of routes that speak another server's format. document: the server's OpenAPI document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        components = document.get("components", {})
        self._schemas: dict[re.Pattern[str], jsonschema.Draft202012Validator] = {}
        for path, methods in document.get("paths", {}).items():
            for operation in methods.values():
                for status, response in operation["responses"].items():
                    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
                    if int(status) >= 400 and not schema.get("$ref", "/ErrorBody").endswith("/ErrorBody"):
                        pattern = re.compile(re.sub(r"\\{\w+\\}", ".*", re.escape(path)) + "/?")
                        self._schemas[pattern] = jsonschema.Draft202012Validator(schema | {"components": components})

    def matches(self, case: Case, content: bytes) -> bool:
        """Whether this is an error body of the case's route."""
        path = case.data.split(b" ", 2)[1].partition(b"?")[0].decode(errors="replace")
        try:
            body = json.loads(content)
        except ValueError:
            return False
        return any(schema.is_valid(body) for route, schema in self._schemas.items() if route.fullmatch(path))


@dataclass(slots=True)
class Findings:
    """Counts by kind of fault, statuses by kind of case, and the first faulty cases."""

    own_errors: OwnErrors = field(default_factory=lambda: OwnErrors({}))
    faults: Counter[str] = field(default_factory=Counter)
    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: Case, answer: Answer | None) -> None:
        """Judge one answer."""
        self.statuses.setdefault(case.kind, Counter())[answer.status if answer else -1] += 1
        if fault := fault_of(case, answer, self.own_errors):
            self.faults[fault] += 1
            if len(self.examples) < _KEPT:
                sent, got = repr(case.data[:600]), repr(answer.content[:300]) if answer else None
                status = answer.status if answer else None
                self.examples.append({"fault": fault, "kind": case.kind, "sent": sent, "status": status, "answer": got})


def fuzz(log: Path, *, requests: int, documents: int, seed: int, settings: Mapping[str, object]) -> Measurement:
    """Send `requests` cases over a few connections, then what no HTTP client sends, then one valid request. Then read
    `documents` mutations of a document of each format."""
    at_start = provenance()
    with tempfile.TemporaryDirectory(prefix="adapters-") as store:
        given = {"enable_lora": True, "disk_cache_dir": store, "max_connections": MAX_CONNECTIONS, **settings}
        with serving(log, given) as server:
            before = {name: process.pid for name, process in processes(server).items()}
            document = httpx.get(f"{server.url}/docs.json").json()
            findings = Findings(OwnErrors(document))
            _send(server.url, itertools.islice(Cases(document, seed), requests), findings)
            at_sockets, socket_facts = attack(server, seed)
            valid = httpx.post(f"{server.url}/v1/extract", json=_BODY, timeout=HUNG_S)
            restarted = before != {name: process.pid for name, process in processes(server).items()}
    of_documents = fuzz_documents(documents, seed)
    tracebacks = log.read_text(errors="replace").count("Traceback (most recent call last)")
    statuses = sum(findings.statuses.values(), Counter[int]())
    honest = {status: statuses[status] for status in HONEST if statuses[status]}
    targets = [
        Target("answers >= 500, but for those that state a condition", "answers", findings.faults["server error"], 0),
        Target("hung", "requests", findings.faults["hung"], 0),
        Target("closed without an answer", "requests", findings.faults["no answer"], 0),
        Target("errors without the error body of their route", "answers", findings.faults["error body"], 0),
        Target("successes that are no JSON", "answers", findings.faults["success body"], 0),
        Target("tracebacks in the log", "", tracebacks, 0),
        Target(
            "processes that died, or a valid request that failed", "", int(restarted or valid.status_code != 200), 0
        ),
        *at_sockets,
        *of_documents.targets,
    ]
    facts = {
        "requests": requests,
        "seed": seed,
        "statuses": {kind: dict(sorted(count.items())) for kind, count in findings.statuses.items()},
        "examples": findings.examples,
        **socket_facts,
        **of_documents.facts,
        "settings": {name: str(value) for name, value in settings.items()},
    }
    listed = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()) if status > 0)
    notes = [
        f"Statuses: {listed}; {statuses[0]} connections that sent no whole request were closed.",
        f"Statuses that state a condition: {honest or 'none'}. A body may ask for a deadline that cannot be met (504).",
    ]
    command = f"make fuzz ARGS='--requests {requests} --documents {documents} --seed {seed}'"
    return Measurement("fuzz", command, targets, facts, at_start, notes)


def fault_of(case: Case, answer: Answer | None, own_errors: OwnErrors) -> str | None:
    """What is wrong with an answer; None if nothing is. answer: None if there was none in time.

    A body of another server's format has no code: its status states the condition.
    """
    if answer is None:
        return "hung"
    if answer.status == 0:
        return "no answer" if case.whole else None
    code = _error_code(answer.content)
    own = code is None and answer.status >= 400 and own_errors.matches(case, answer.content)
    if answer.status >= 500 and not _states_a_condition(answer.status, code, own=own):
        return "server error"
    if case.method == "HEAD":
        return None
    if answer.status >= 400:
        return None if code or own else "error body"
    return None if _is_success(case, answer) else "success body"


def exchange(url: str, case: Case) -> Answer | None:
    """Send a case over a connection of its own; None if the server neither answers nor closes in time."""
    parts = urlsplit(url)
    assert parts.port
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=HUNG_S) as connection:
            with contextlib.suppress(OSError):  # the server may answer, and close, before it has read all
                connection.sendall(case.data)
                if not case.whole:
                    connection.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(connection, method=case.method)
            response.begin()
            return Answer(response.status, response.read())
    except TimeoutError:
        return None
    except (OSError, http.client.HTTPException):
        return Answer(0)


def _send(url: str, cases: Iterable[Case], findings: Findings) -> None:
    """A few cases wait, so that they need not all be in memory."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        while block := list(itertools.islice(cases, 50 * CONNECTIONS)):
            for case, answer in zip(block, pool.map(lambda case: exchange(url, case), block), strict=True):
                findings.add(case, answer)


def _states_a_condition(status: int, code: str | None, *, own: bool) -> bool:
    return status in HONEST and (own or (code is not None and code in HONEST[status]))


def _error_code(content: bytes) -> str | None:
    """The code in the one error body; None if it is another body."""
    try:
        error = json.loads(content)["error"]
        return str(error["code"]) if set(error) == _ERROR and error["message"] and error["request_id"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _is_success(case: Case, answer: Answer) -> bool:
    if case.method != "POST" or answer.status != 200 or b"/stream" in case.data.partition(b"\r\n")[0]:
        return True
    try:
        return json.loads(answer.content) is not None
    except ValueError:
        return False

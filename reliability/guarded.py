"""Faults of `make chaos` during calls of LiteLLM's guardrail: no value may reach a language model, whatever fails."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from reliability.redis_server import PROGRAM, RedisServer
from reliability.served import serving

_ROUTE = "/beta/litellm_basic_guardrail_api"
_VALUES = ("Ada Lovelace", "ada@example.com", "4111 1111 1111 1111")
_TEXT = "{} ({}) pays with {}.".format(*_VALUES)
_REDACTED = "GUARDRAIL_INTERVENED"
_CLIENTS = 4
_TIMEOUT_S = 60.0

_numbers = itertools.count()


class CannotRun(Exception):
    """A fault needs what is not installed here."""


def guard_during(url: str, act: Callable[[], object], *, timeout_s: float = _TIMEOUT_S, redacts: bool = False) -> str:
    """Send requests through the guardrail while `act` runs; returns how they ended. timeout_s: of a call, as in
    LiteLLM. Raises AssertionError if a value passes, or, with `redacts`, if no request is redacted meanwhile."""
    _check(url, _REDACTED)
    stopped = threading.Event()

    def send() -> Counter[str]:
        outcomes = Counter[str]()
        while not stopped.is_set():
            outcomes[_outcome(url, timeout_s)] += 1
        return outcomes

    with ThreadPoolExecutor(_CLIENTS) as pool:
        sending = [pool.submit(send) for _ in range(_CLIENTS)]
        try:
            act()
        finally:
            stopped.set()
    outcomes = sum((one.result() for one in sending), Counter[str]())
    if redacts and not outcomes[_REDACTED]:
        raise AssertionError(f"no call of the guardrail was answered: {dict(outcomes)}")
    return f"no value passed: {dict(sorted(outcomes.items()))}"


def guard_with_redis() -> str:
    """A server of its own whose Redis is stopped, lost and full, then one with another key. Raises `CannotRun`."""
    if not (PROGRAM and find_spec("redis")):
        raise CannotRun("it needs redis-server and the extra redis")
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, RedisServer(Path(name)) as redis:
        settings = {"redis_url": redis.url, "redaction_key": "a" * 40}
        with serving(Path(name) / "log", settings) as server:
            for fault in (redis.stop, redis.kill):
                _check(server.url, _REDACTED, call="kept")
                fault()
                _check(server.url, "storage_unavailable")
                redis.kill()
                redis.start()
            _check(server.url, _REDACTED, call="kept")
            redis.fill()
            _check(server.url, "storage_unavailable")
        with serving(Path(name) / "log", {**settings, "redaction_key": "b" * 40}) as server:
            answer = _post(server.url, "response", ["[PERSON_1]"], "kept").json()
            if answer["action"] != "NONE":
                raise AssertionError(f"a mapping of another key was opened: {answer['action']}")
    return "stopped, lost, full: refused; another key: not restored"


def _check(url: str, expected: str, call: str | None = None) -> None:
    outcome = _outcome(url, _TIMEOUT_S, call)
    if outcome != expected:
        raise AssertionError(f"a call of the guardrail ended with {outcome} in place of {expected}")


def _outcome(url: str, timeout_s: float, call: str | None = None) -> str:
    """How a request ends: LiteLLM's action, the code of an error, or that there is no answer. Raises AssertionError if
    LiteLLM would send a value."""
    try:
        answer = _post(url, "request", [_TEXT], call, timeout_s)
    except httpx.TransportError as error:
        return type(error).__name__
    if not answer.is_success:
        return str(answer.json()["error"]["code"])
    content = answer.json()
    sent = [] if content["action"] == "BLOCKED" else content.get("texts") or [_TEXT]
    if any(value in text for text in sent for value in _VALUES):
        raise AssertionError(f"a value passed: {content['action']}")
    return str(content["action"])


def _post(
    url: str, input_type: str, texts: list[str], call: str | None, timeout_s: float = _TIMEOUT_S
) -> httpx.Response:
    body: dict[str, Any] = {"input_type": input_type, "texts": texts}
    body["litellm_call_id"] = call or f"call-{next(_numbers)}"
    return httpx.post(f"{url}{_ROUTE}", json=body, timeout=timeout_s)

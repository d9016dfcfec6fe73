"""A load of the soak's requests, whose right answers the idle server has given before."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from gliner_bento.tasks.base import BASE_ADAPTER_ID
from reliability.soak_requests import SoakRequest, predictions, same, soak_requests

RIGHT, WRONG, HUNG, DROPPED, REFUSED = "right", "wrong", "hung", "dropped", "refused"
HUNG_S = 90.0
_TIMEOUT_MS = 20_000
_PAUSE_S = 0.05
_HEADERS = {"Content-Type": "application/json"}
_OK = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what its answer predicts."""

    request: SoakRequest
    right: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended; code: of its error. sent_s, ended_s: on the monotonic clock."""

    kind: str
    code: str
    sent_s: float
    ended_s: float

    @property
    def name(self) -> str:
        """Kind and code."""
        return f"{self.kind} ({self.code})" if self.code else self.kind


class Refused(Exception):
    """An error of the server."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def known_answers(url: str, count: int) -> list[Asked]:
    """Different requests that may take 20 s each, with their answers, sent one by one."""
    asked = soak_requests(count, adapters=[BASE_ADAPTER_ID])
    timed = [
        SoakRequest(one.kind, one.path, one.body if one.kind == "gliner" else one.body | {"timeout_ms": _TIMEOUT_MS})
        for one in asked
    ]

    async def ask() -> list[Asked]:
        async with aiohttp.ClientSession() as session:
            return [Asked(one, await _answer(session, url, one)) for one in timed]

    return asyncio.run(ask())


class Load:
    """Clients that send the requests in a cycle, each its next when its last is answered, until `stop`."""

    def __init__(self, url: str, asked: Sequence[Asked], clients: int) -> None:
        self.outcomes: list[Outcome] = []
        self._url = url
        self._asked = itertools.cycle(asked)
        self._clients = clients
        self._stopped = False

    def run(self) -> None:
        """Send until `stop`; returns when the last request has ended. Blocks."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Send no more."""
        self._stopped = True

    def counts(self, since_s: float = 0.0) -> Counter[str]:
        """How the requests ended that were sent since then, by name."""
        return Counter(outcome.name for outcome in list(self.outcomes) if outcome.sent_s >= since_s)

    async def _run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(self._clients)))

    async def _client(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HUNG_S)) as session:
            while not self._stopped:
                asked, sent_s = next(self._asked), time.monotonic()
                kind, code = await self._outcome(session, asked)
                self.outcomes.append(Outcome(kind, code, sent_s, time.monotonic()))
                if kind != RIGHT:
                    await asyncio.sleep(_PAUSE_S)

    async def _outcome(self, session: aiohttp.ClientSession, asked: Asked) -> tuple[str, str]:
        try:
            answer = await _answer(session, self._url, asked.request)
        except Refused as refused:
            return REFUSED, refused.code
        except asyncio.TimeoutError:
            return HUNG, ""
        except (aiohttp.ClientError, ConnectionError) as error:
            return DROPPED, type(error).__name__
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return WRONG, type(error).__name__
        return (RIGHT if same(answer, asked.right) else WRONG), ""


async def _answer(session: aiohttp.ClientSession, url: str, request: SoakRequest) -> Any:
    """What the answer predicts. Raises `Refused`, aiohttp's errors, and others for what is no answer."""
    async with session.post(url + request.path, data=request.payload, headers=_HEADERS) as response:
        content = await response.read()
    last = json.loads(content.splitlines()[-1])
    errors = [each["error"] for each in last["results"] if each.get("error")] if "results" in last else []
    if response.status != _OK or "error" in last or errors:
        error = [*errors, last.get("error")][0]
        raise Refused(str(error["code"]) if isinstance(error, dict) else str(response.status))
    return predictions(request, content)

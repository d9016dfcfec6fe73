"""The round trip: whole conversations are redacted, answered by a double of a language model, and restored.

A third of the conversations go through LiteLLM's guardrail, the others through `/v1/redact` and `/v1/restore`, every
second of them with all earlier messages in each request. Half of the replies are streams.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from gliner_bento.loadtest.machine import provenance
from gliner_bento.mentions import normalized
from gliner_bento.privacy.json_texts import is_json
from reliability.conversations import PLACEHOLDER, LanguageModel, Reply, User
from reliability.measurement import Measurement, Target
from reliability.served import serving

TURNS = 6
_TIMEOUT_S = 120.0
_MISSED_SHARE = 0.005
_KEPT = 20
_GUARDRAIL = "/beta/litellm_basic_guardrail_api"

Row = dict[str, Any]
"""A message, as in OpenAI's chat completions: role, content, perhaps tool_calls."""


class Guard(Protocol):
    """What is between a program and a language model."""

    async def redact(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that are sent to the language model, as it may read them: the last ones, or all."""

    async def restore(self, text: str, *, is_json: bool) -> str:
        """What a language model has written, with originals."""

    async def restore_stream(self, chunks: Sequence[str], *, is_json: bool) -> str:
        """The same of a stream: what the user has seen at its end."""


@dataclass(slots=True)
class Outcome:
    """What conversations showed. counts: see `_Conversation`. examples: the first faults, of made-up people."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[Mapping[str, str]] = field(default_factory=list)

    def fault(self, kind: str, **about: str) -> None:
        """Count a fault."""
        self.counts[kind] += 1
        if len(self.examples) < _KEPT:
            self.examples.append({"fault": kind, **about})


class Routes:
    """`/v1/redact` and `/v1/restore`. whole: whether each request has all rows of the conversation."""

    def __init__(self, client: httpx.AsyncClient, *, whole: bool) -> None:
        self._client, self._whole = client, whole
        self._mapping: str | None = None
        self._sent = 0

    async def redact(self, rows: Sequence[Row]) -> list[Row]:
        """See `Guard`."""
        new = rows if self._whole else rows[self._sent :]
        texts = [text for row in new for text in texts_of(row)]
        answer = await _post(self._client, "/v1/redact", {"texts": texts, "mapping": self._mapping})
        self._mapping = answer["mapping"]
        redacted = iter(answer["texts"])
        self._sent = len(rows)
        return [_with_texts(row, [next(redacted) for _ in texts_of(row)]) for row in new]

    async def restore(self, text: str, *, is_json: bool) -> str:
        """See `Guard`."""
        body = {"text": text, "mapping": self._mapping, "format": "json" if is_json else "text"}
        return str((await _post(self._client, "/v1/restore", body))["texts"][0])

    async def restore_stream(self, chunks: Sequence[str], *, is_json: bool) -> str:
        """See `Guard`."""
        shown = held = ""
        for chunk in chunks:
            body = {"text": held + chunk, "mapping": self._mapping, "format": "json" if is_json else "text"}
            answer = await _post(self._client, "/v1/restore", {**body, "partial": True})
            shown, held = shown + answer["texts"][0], answer["held"]
        return shown + (await self.restore(held, is_json=is_json) if held else "")


class Guardrail:
    """LiteLLM's Generic Guardrail API, as LiteLLM calls it."""

    def __init__(self, client: httpx.AsyncClient, name: str) -> None:
        self._client, self._name, self._calls = client, name, 0

    async def redact(self, rows: Sequence[Row]) -> list[Row]:
        """See `Guard`."""
        self._calls += 1
        texts = [row["content"] for row in rows if isinstance(row["content"], str)]
        calls = [call for row in rows for call in row.get("tool_calls", ())]
        answer = await self._send("request", texts=texts, structured_messages=rows, tool_calls=calls or None)
        if answer["action"] == "NONE":
            return [*rows]
        if answer["structured_messages"]:
            return [*answer["structured_messages"]]
        new = iter(answer["texts"])
        return [{**row, "content": next(new)} if isinstance(row["content"], str) else row for row in rows]

    async def restore(self, text: str, *, is_json: bool) -> str:
        """See `Guard`."""
        if not is_json:
            return str((await self._send("response", texts=[text]))["texts"][0])
        answer = await self._send("response", tool_calls=[_tool_call(text)])
        return str(answer["tool_calls"][0]["function"]["arguments"])

    async def restore_stream(self, chunks: Sequence[str], *, is_json: bool) -> str:
        """See `Guard`."""
        shown = ""
        for count in range(1, len(chunks) + 1):
            answer = await self._send("response", texts=["".join(chunks[:count])])
            text, (held,) = answer["texts"][0], answer["stream_holdback_chars"] or [0]
            shown += text[len(shown) : len(text) - held if count < len(chunks) else None]
        return shown

    async def _send(self, input_type: str, **fields: Any) -> Any:
        ids = {"litellm_call_id": f"{self._name}-{self._calls}", "litellm_trace_id": self._name}
        answer = await _post(self._client, _GUARDRAIL, {"input_type": input_type, **ids, **fields})
        if answer["action"] == "NONE":
            return {**answer, **{name: value for name, value in fields.items() if value}}
        return answer


def round_trip(log: Path, *, conversations: int, concurrency: int, settings: Mapping[str, object]) -> Measurement:
    """Hold that many conversations of six turns with a server."""
    at_start = provenance()
    with serving(log, settings) as server:

        async def hold() -> Outcome:
            limits = httpx.Limits(max_connections=concurrency)
            async with httpx.AsyncClient(base_url=server.url, timeout=_TIMEOUT_S, limits=limits) as client:
                return await converse(client, conversations, concurrency=concurrency)

        outcome = asyncio.run(hold())
    counts = outcome.counts
    allowed = _MISSED_SHARE * counts["replies"]
    targets = [
        Target("found values that reached the language model", "", counts["passed"], 0),
        Target(f"replies that were not restored exactly, of {counts['replies']}", "", counts["not restored"], allowed),
        Target("equal values with different placeholders, or the reverse", "", counts["inconsistent"], 0),
        Target("texts that were changed otherwise", "", counts["changed"], 0),
        Target("requests that failed", "", counts["failed"], 0),
    ]
    facts = {
        "conversations": conversations,
        "turns": TURNS,
        "seed": "one per conversation, from 0",
        "counts": dict(sorted(counts.items())),
        "examples": outcome.examples,
        "settings": {name: str(value) for name, value in settings.items()},
    }
    command = f"python -m reliability round_trip --conversations {conversations}"
    planted = f"{counts['covered values']} of {counts['values']} values in messages were replaced."
    return Measurement("round_trip", command, targets, facts, at_start, [planted])


async def converse(client: httpx.AsyncClient, conversations: int, *, concurrency: int = 1) -> Outcome:
    """Hold conversations, with their numbers as seeds."""
    outcome, free = Outcome(), asyncio.Semaphore(concurrency)

    async def hold(number: int) -> None:
        async with free:
            guard = (
                Guardrail(client, f"conversation-{number}")
                if number % 3 == 0
                else Routes(client, whole=number % 2 == 0)
            )
            try:
                await _Conversation(guard, number, outcome).hold()
            except (
                httpx.HTTPError,
                KeyError,
                TypeError,
                ValueError,
            ) as error:  # or another answer
                outcome.fault("failed", error=repr(error))

    await asyncio.gather(*map(hold, range(conversations)))
    return outcome


class _Conversation:
    """One conversation, and what is checked in it. Every third one has tool calls.

    Counts: replies, streams and tool calls; values in messages, and those of them that are replaced in each. Faults:
    `passed`, an original that was replaced once is in what the language model reads; `inconsistent`; `changed`, a
    redacted text is not the original with placeholders; `not restored`.
    """

    def __init__(self, guard: Guard, number: int, outcome: Outcome) -> None:
        draw = random.Random(number)
        self._guard, self._draw, self._outcome = guard, draw, outcome
        self._user, self._model = User(draw), LanguageModel(draw)
        self._has_tools = number // 3 % 3 == 0
        self._rows: list[Row] = []
        self._originals: dict[str, str] = {}
        self._placeholders: dict[str, str] = {}

    async def hold(self) -> None:
        """All turns."""
        for turn in range(TURNS):
            message = self._user.follow_up() if turn else self._user.opening()
            self._rows.append({"role": "user", "content": message})
            seen = await self._redacted()
            self._count_values(message)
            if self._has_tools and turn % 2:
                call = _tool_call(await self._answered(self._model.arguments(seen), streamed=False))
                result = json.dumps(self._user.tool_result(), ensure_ascii=False)
                self._rows.append({"role": "assistant", "content": None, "tool_calls": [call]})
                self._rows.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                self._outcome.counts["tool calls"] += 1
                seen = await self._redacted()
            reply = await self._answered(self._model.reply(seen), streamed=self._draw.random() < 1 / 2)
            self._rows.append({"role": "assistant", "content": reply})

    async def _redacted(self) -> list[str]:
        """The last texts as the language model reads them."""
        redacted = await self._guard.redact(self._rows)
        pairs = [
            pair
            for row, new in zip(self._rows[-len(redacted) :], redacted, strict=True)
            for pair in zip(texts_of(row), texts_of(new), strict=True)
        ]
        for text, new in pairs:
            self._learn(text, new)
        for _, new in pairs:
            self._check(new)
        return [new for _, new in pairs[-3:]]

    def _learn(self, text: str, redacted: str) -> None:
        """Check that a redacted text is the original with placeholders, and learn what each stands for."""
        replaced = aligned(read(text), read(redacted))
        if replaced is None:
            self._outcome.fault("changed", text=text, redacted=redacted)
        for placeholder, original in replaced or ():
            value = normalized(original)
            same = self._placeholders.setdefault(value, placeholder) == placeholder
            if not same or normalized(self._originals.setdefault(placeholder, original)) != value:
                self._outcome.fault("inconsistent", text=text, redacted=redacted)

    def _check(self, redacted: str) -> None:
        rest = PLACEHOLDER.sub("\0", read(redacted))
        for original in self._originals.values():
            if shows(rest, original):
                self._outcome.fault("passed", value=original, redacted=redacted)

    def _count_values(self, message: str) -> None:
        sent = {value for value in self._user.values.values() if shows(message, value)}
        self._outcome.counts["values"] += len(sent)
        self._outcome.counts["covered values"] += sum(
            any(normalized(value) in original for original in self._placeholders) for value in sent
        )

    async def _answered(self, reply: Reply, *, streamed: bool) -> str:
        """What the user reads of a reply."""
        written, is_json = reply.written, reply.fields is not None
        if streamed:
            restored = await self._guard.restore_stream(self._model.chunks(written), is_json=is_json)
        else:
            restored = await self._guard.restore(written, is_json=is_json)
        counts = self._outcome.counts
        counts["replies"] += 1
        counts["streams"] += streamed
        counts["placeholders"] += len(reply.mentions)
        expected = reply.restored(self._originals)
        if not (restored == expected or (is_json and _same_json(restored, expected))):
            self._outcome.fault("not restored", written=written, restored=restored, expected=expected)
        return expected


def texts_of(row: Row) -> list[str]:
    """The texts of a row: its content, and the values in the arguments of its tool calls."""
    texts = [row["content"]] if isinstance(row["content"], str) else []
    return texts + [text for call in row.get("tool_calls", ()) for text in _arguments(call).values()]


def read(text: str) -> str:
    """What a text says: of one that is JSON, the names and values, without escapes."""
    if not is_json(text):
        return text
    said: list[str] = []
    _collect(json.loads(text), said)
    return "\0".join(said)


def _collect(value: Any, said: list[str]) -> None:
    if isinstance(value, dict):
        value = [one for field in value.items() for one in field]
    if isinstance(value, list):
        for one in value:
            _collect(one, said)
    else:
        said.append(str(value))


def aligned(text: str, redacted: str) -> list[tuple[str, str]] | None:
    """What each placeholder of a redacted text stands for; None if the rest is not that of the text."""
    pattern = "(.+?)".join(map(re.escape, PLACEHOLDER.split(redacted)))
    match = re.fullmatch(pattern, text, re.DOTALL)
    return None if match is None else [*zip(PLACEHOLDER.findall(redacted), match.groups(), strict=True)]


def shows(text: str, value: str) -> bool:
    """Whether a text has a value as a whole word: one that is no single word in any case."""
    flags = 0 if value.isalpha() else re.IGNORECASE
    return len(value) > 1 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, flags) is not None


def _arguments(call: Row) -> dict[str, str]:
    arguments: dict[str, str] = json.loads(call["function"]["arguments"])
    return arguments


def _with_texts(row: Row, texts: Sequence[str]) -> Row:
    """The row with other texts, which are in the order of `texts_of`."""
    new = iter(texts)
    changed = {**row, "content": next(new)} if isinstance(row["content"], str) else dict(row)
    if calls := row.get("tool_calls"):
        arguments = [{name: next(new) for name in _arguments(call)} for call in calls]
        changed["tool_calls"] = [
            _tool_call(json.dumps(values, ensure_ascii=False), call["id"])
            for call, values in zip(calls, arguments, strict=True)
        ]
    return changed


def _tool_call(arguments: str, name: str = "call_1") -> Row:
    return {"id": name, "type": "function", "function": {"name": "find", "arguments": arguments}}


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


async def _post(client: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> Any:
    response = await client.post(path, json=body)
    response.raise_for_status()
    return response.json()

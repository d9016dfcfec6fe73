"""CPU time of redaction and of LiteLLM's guardrail beside that of extraction, and of restoring: in this process, with
the bundled model, and without sockets."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from benchmark.jobs import run_job
from benchmark.jobs.overhead import Bench, gateway_app, local_replica
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from gliner_bento.asgi import create_app
from gliner_bento.privacy.personal import personal_labels
from gliner_bento.privacy.recognizers.find import RECOGNIZERS
from gliner_bento.privacy.restoring import Restorer

_PER_KB = "us of CPU per kB"
_US = "us of CPU per request"
_REDACT, _RESTORE, _GUARDRAIL = "/v1/redact", "/v1/restore", "/beta/litellm_basic_guardrail_api"
_RESTORE_US_PER_KB = 100.0
_GUARDRAIL_US = 3000.0
_EACH_CHARS = 10_000

MESSAGES = (
    "You are the assistant of a travel agency. Answer briefly, and never invent a booking.",
    "Good morning, my name is Rosa Lindqvist. I booked two rooms in Porto from 4 May to 11 May, under the name of my "
    "husband Emeka Okafor. Could you check whether breakfast is included? You can reach me at rosa.l@mail.example or "
    "+44 20 7946 0958.",
    "Good morning, Rosa Lindqvist! Breakfast is included for both rooms. Shall I send the confirmation to you?",
    "Yes please. My new address is 14 Harbour Road, Leeds. Charge the card 4111 1111 1111 1111, and send a copy to "
    "Emeka Okafor, emeka@post.example.org.",
)


def main(repetitions: int) -> dict[str, Any]:
    """The rows, as data."""
    return {"rows": [row.as_data() for row in asyncio.run(_measured(repetitions))]}


async def _measured(repetitions: int) -> list[Row]:
    app, bench = create_app(), Bench([], repetitions)
    async with app.router.lifespan_context(app), _posting(app) as post:
        rows = await _redact_rows(post, repetitions)
    with local_replica(bench) as replica:
        async with _posting(gateway_app(bench.settings, replica)) as post:
            rows.append(await _guardrail_row(post, repetitions))
    return [*rows, *_restore_rows(repetitions)]


@asynccontextmanager
async def _posting(app: Any) -> AsyncIterator[Post]:
    """Sends a body to a route of an app."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ours") as client:

        async def post(path: str, body: bytes) -> Any:
            response = await client.post(path, content=body, headers={"Content-Type": "application/json"})
            response.raise_for_status()
            return response.json()

        yield post


Post = Callable[[str, bytes], Awaitable[Any]]


async def _redact_rows(post: Post, repetitions: int) -> list[Row]:
    """`/v1/redact`, whole conversation, and its last message with the mapping, over extraction with the same labels."""
    first = await post(_REDACT, _body(texts=MESSAGES[:-1]))
    bodies = {
        f"redact, {len(MESSAGES)} texts": (_body(texts=MESSAGES), _extract_body(MESSAGES)),
        "redact, a text with a mapping": (
            _body(texts=MESSAGES[-1:], mapping=first["mapping"]),
            _extract_body(MESSAGES[-1:]),
        ),
    }
    rows = []
    for name, (ours, theirs) in bodies.items():
        redact_us, extract_us = await _alternately(post, (_REDACT, ours), (f"{EXTRACT}/batch", theirs), repetitions)
        rows.append(Row("overhead", name, _US, redact_us, extract_us, "/v1/extract/batch", 1.1, "less"))
    return rows


async def _guardrail_row(post: Post, repetitions: int) -> Row:
    """What a guardrail call costs more than extraction from its texts, over an engine without a model."""
    rows = [
        {"role": role, "content": text}
        for role, text in zip(("system", "user", "assistant", "user"), MESSAGES, strict=True)
    ]
    ids = {"litellm_call_id": "c", "litellm_trace_id": "t"}
    ours = _body(input_type="request", texts=MESSAGES, structured_messages=rows, **ids)
    theirs = _extract_body(MESSAGES)
    guard_us, extract_us = await _alternately(post, (_GUARDRAIL, ours), (f"{EXTRACT}/batch", theirs), repetitions)
    note = f"{guard_us:.0f} us, /v1/extract/batch {extract_us:.0f}"
    name = f"guardrail, {len(MESSAGES)} texts, above extraction"
    return Row("overhead", name, _US, guard_us - extract_us, _GUARDRAIL_US, "the goal", 1.0, "less", note)


def _restore_rows(repetitions: int) -> Iterator[Row]:
    """Texts of 10,000 characters with a placeholder in each sentence: whole, and in chunks of 20 characters."""
    mapping = {f"[PERSON_{number}]": f"Rosa Lindqvist {number}" for number in range(40)}
    mapping |= {f"[EMAIL_ADDRESS_{number}]": f"rosa{number}@mail.example" for number in range(40)}
    sentences = [
        f"Please write to {placeholder} about the rooms in Porto, and about breakfast. " for placeholder in mapping
    ]
    text = ("".join(sentences) * 10)[:_EACH_CHARS]

    def whole() -> None:
        Restorer(mapping).restore(text, "text")

    def streamed() -> None:
        restorer, held = Restorer(mapping), ""
        for at in range(0, len(text), 20):
            _, held = restorer.restore_chunk(held + text[at : at + 20])

    whole_us, streamed_us = (
        min(_cpu_us(call) for _ in range(repetitions)) * 1000 / _EACH_CHARS for call in (whole, streamed)
    )
    yield Row("overhead", "restore", _PER_KB, whole_us, _RESTORE_US_PER_KB, "the goal", 1.0, "less")
    yield Row("overhead", "restore, in chunks of 20 characters", _PER_KB, streamed_us)


async def _alternately(
    post: Post, ours: tuple[str, bytes], theirs: tuple[str, bytes], repetitions: int
) -> tuple[float, float]:
    """The least CPU time of this process for each of two requests, in us."""
    best = [float("inf"), float("inf")]
    for _ in range(repetitions):
        for index, (path, body) in enumerate((ours, theirs)):
            gc.collect()
            start = time.process_time()
            await post(path, body)
            best[index] = min(best[index], (time.process_time() - start) * 1e6)
    return best[0], best[1]


def _cpu_us(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e6


def _body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _extract_body(texts: Sequence[str]) -> bytes:
    """A request for what `/v1/redact` finds."""
    labels = personal_labels(RECOGNIZERS)
    return _body(texts=texts, labels=labels, recognizers=[*RECOGNIZERS], on_limit="error", long_text="window")


if __name__ == "__main__":
    run_job(main)

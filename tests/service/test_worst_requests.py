"""No request costs much: options at their limits, against the bundled model.

A few small examples; GLINER_WORST_REQUESTS=200 draws so many, with texts of up to `max_text_chars`, and checks times.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, LimitExceeded, TooLarge
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_parts import json_parts
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import MAX_ENTITIES, MAX_RELATIONS, ExtractionOptions, extraction_of
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractRequest, request_of

EXAMPLES = int(os.environ.get("GLINER_WORST_REQUESTS", "0"))
CHARS = 2_000_000 if EXAMPLES else 20_000
TIMEOUT_S = 5.0 if EXAMPLES else 1.0
MAX_GROWTH_BYTES = 300 * 2**20
MAX_LATE_S = 1.0
WEDGED_S = 300.0  # a safety net: no test passes by waiting

UNITS = [
    "Tim Cook met Marie Curie in Paris. ",
    "word " * 99 + ".",
    "a",
    "a-",
    "a\n",
    "- ",
    "漢",
    "e\u0301",
    "👩\u200d",
    "🇦",
    "\x00",
]
TEXTS = st.builds(
    lambda unit, chars: unit * max(1, chars // len(unit)), st.sampled_from(UNITS), st.sampled_from([150, 1500, CHARS])
)
NAMES = st.builds(
    lambda number, word: [f"{word} {index}" for index in range(number)],
    st.sampled_from([1, 25, 60, 1000]),
    st.sampled_from(["kind", "a" * 900, "word " * 150]),
)
SCORES = st.sampled_from([0.0, 0.0, 0.5])
OPTIONS = st.fixed_dictionaries(
    {
        "labels": NAMES,
        "relations": st.none() | NAMES,
        "threshold": SCORES,
        "relation_threshold": SCORES,
        "flat_ner": st.booleans(),
        "multi_label": st.booleans(),
        "long_text": st.sampled_from(["window", "window", "truncate", "reject"]),
        "on_limit": st.sampled_from(["error", "truncate"]),
    },
    optional={"window_words": st.sampled_from([8, 250]), "window_overlap_words": st.sampled_from([0, 7])},
)


class Server:
    """The gateway over a replica with the bundled model, and its memory."""

    def __init__(self) -> None:
        settings = Settings(precompiled_batch_sizes=(1, 8), self_test=False)
        self.replica = LocalReplica.load(settings)
        self.gateway = Gateway(self.replica, settings.view(GatewayOptions))
        self.process = psutil.Process()

    async def answer(self, request: ExtractRequest | ExtractBatchRequest) -> list[Any]:
        """The result or error of each text, written as JSON."""
        context = Context()
        try:
            if isinstance(request, ExtractBatchRequest):
                batch = await self.gateway.run_batch(context, await self.gateway.batch_of(context, vars(request)))
                assert any(json_parts(batch))
                return [one.result or one.error for one in batch.results]
            answer = await self.gateway.run(context, request_of(vars(request)))
            assert any(json_parts(answer))
            return [answer]
        except GLiNERBentoError as error:
            return [error]

    def is_idle(self) -> bool:
        stats = self.replica.scheduler.stats
        return not stats.unfinished_items and stats.lanes_free == stats.lanes_alive


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    small = {"text": UNITS[0] * 20, "labels": ["person"], "relations": ["met"], "threshold": 0.0}
    for _ in range(3):
        asyncio.run(server.answer(ExtractRequest.model_validate(small)))
    yield server
    server.replica.close()


class Peak:
    """The most memory that this process has while the context is open, in bytes above what it had before."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._ended = threading.Event()

    def __enter__(self) -> Peak:
        self._before = self._most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self._most = max(self._most, self._process.memory_info().rss)

    @property
    def growth_bytes(self) -> int:
        return self._most - self._before


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    max_examples=EXAMPLES or 12,
    deadline=None,
    derandomize=not EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(TEXTS, min_size=1, max_size=2), st.sampled_from([1, 1, 1, 100]), OPTIONS)
def test_the_worst_request_is_bounded(server: Server, texts: list[str], times: int, options: dict[str, Any]) -> None:
    options |= {"timeout_ms": TIMEOUT_S * 1000}
    request: ExtractRequest | ExtractBatchRequest
    if times * len(texts) == 1:
        request = ExtractRequest.model_validate({"text": texts[0], **options})
    else:
        texts = [text[: 10 * CHARS // (times * len(texts))] for text in texts] * times
        request = ExtractBatchRequest.model_validate({"texts": texts, **options})
    with Peak(server.process) as peak:
        started_s = time.monotonic()
        outcomes = asyncio.run(asyncio.wait_for(server.answer(request), WEDGED_S))
        while not server.is_idle() and time.monotonic() - started_s < WEDGED_S:
            time.sleep(0.01)
        late_s = time.monotonic() - started_s - TIMEOUT_S
    assert server.is_idle()
    assert not [outcome for outcome in outcomes if isinstance(outcome, InternalError)]
    results = [outcome for outcome in outcomes if hasattr(outcome, "entities")]
    share = 100 * (len(outcomes) > 1) * len(outcomes)
    assert sum(len(result.entities) for result in results) <= MAX_ENTITIES + share
    assert sum(len(result.relations) for result in results) <= MAX_RELATIONS + share
    assert peak.growth_bytes <= MAX_GROWTH_BYTES
    if EXAMPLES:
        event(f"{late_s:+.1f} s late, {peak.growth_bytes >> 20} MB")
        assert late_s <= MAX_LATE_S


def test_the_request_of_one_kilobyte_that_took_gigabytes_is_refused_or_cut(server: Server) -> None:
    worst = {
        "text": "Tim Cook met Marie Curie " * 25,
        "labels": ["person", "organization"],
        "relations": [f"kind {number}" for number in range(20)],
        "threshold": 0.0,
        "relation_threshold": 0.0,
        "flat_ner": False,
        "timeout_ms": 29_000,
    }
    with Peak(server.process) as peak:
        (refused,) = asyncio.run(server.answer(ExtractRequest.model_validate(worst)))
        (cut,) = asyncio.run(server.answer(ExtractRequest.model_validate(worst | {"on_limit": "truncate"})))
    assert isinstance(refused, LimitExceeded)
    assert "max_relations" in refused.message
    if not isinstance(cut, DeadlineExceeded):  # on a slow machine
        assert [warning.code for warning in cut.warnings] == ["max_relations"]
        assert len(cut.relations) == MAX_RELATIONS
    assert peak.growth_bytes <= MAX_GROWTH_BYTES


def test_a_batch_shares_the_limits_of_an_answer(server: Server) -> None:
    text = UNITS[0] * 20
    options = {"labels": ["person", "place"], "threshold": 0.0, "flat_ner": False, "multi_label": True}
    request = extraction_of(["Paris", text], ExtractionOptions(**options, on_limit="truncate"))
    limited = Settings(max_entities=150).view(GatewayOptions)
    gateway = Gateway(server.replica, limited)
    small, large = asyncio.run(gateway.run_batch(Context(), request)).results
    assert small.result is not None
    assert large.result is not None
    assert (len(small.result.entities), list(small.result.warnings)) == (2, [])
    assert len(large.result.entities) == 150
    assert [warning.code for warning in large.result.warnings] == ["max_entities"]


def test_a_text_that_is_too_long_is_still_too_large(server: Server) -> None:
    (outcome,) = asyncio.run(server.answer(ExtractRequest(text="a" * 2_000_001, labels=["x"])))
    assert isinstance(outcome, TooLarge)

"""A task is one module and one row of the table: the test's own works on every way that a request can take."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from count_words import COUNTING, Count, CountedWord, CountEnd, CountItem
from doubles.fake_engine import FAKE_INFO, FakeEngine, extract
from doubles.memory_replica import RESULTS, MemoryReplica
from on_a_socket import on_a_socket
from views import view

from gliner_bento.client import AsyncClient, Client
from gliner_bento.engine.text.prepare import ItemPreparer
from gliner_bento.errors import InvalidField, NotReady
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.replicas.base import Call, Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.local.adapters import LocalAdapters
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.replicas.messages import ItemsMessage, OutcomesMessage, StreamMessage
from gliner_bento.scheduler.scheduler import SchedulerConfig
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.table import TASKS

TEXT, WORDS = "to be or not", ["not"]


class CountingEngine(FakeEngine):
    """Extracts and counts."""

    def __init__(self) -> None:
        super().__init__(tokens=lambda item: len(item.text.split()))

    def decode(self, scores: Sequence[Any]) -> list[Any]:
        return [count(item) if isinstance(item, CountItem) else extract(item) for item in scores]


def count(item: CountItem) -> Count:
    words = [word for word in item.text.split() if len(word) >= item.min_chars]
    return Count(words, usage=Usage(tokens=len(item.text)))


@pytest.fixture(autouse=True)
def a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, COUNTING.name, COUNTING)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalReplica]:
    replica = LocalReplica(CountingEngine(), view(SchedulerConfig), adapters=LocalAdapters(None, Uploads(tmp_path)))
    yield replica
    replica.close()


def gateway_of(replica: Replica) -> GatewayApp:
    app = GatewayApp(view(GatewayOptions, compat=("none",), max_text_chars=100))
    app.bind(replica)
    return app


def ask(replica: Replica, scene: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    async def asked() -> Any:
        transport = httpx.ASGITransport(gateway_of(replica))
        async with AsyncClient("http://test", transport=transport) as client:
            return await scene(client)

    return asyncio.run(asked())


async def all_ways(client: AsyncClient) -> tuple[Any, Any, list[Any]]:
    return (
        await client.run("count", TEXT, min_chars=3, request_id="r"),
        await client.run_batch("count", [TEXT, "to be", "x" * 101], min_chars=3),
        [line async for line in client.run_stream("count", TEXT, min_chars=2)],
    )


def check(one: Any, batch: Any, lines: list[Any]) -> None:
    assert (one.words, one.model, one.adapter_id, one.request_id) == (WORDS, "fake", None, "r")
    assert one.usage.tokens == len(TEXT)
    assert batch.results[0].result.words == WORDS
    assert batch.results[2].error.param == "texts.2"
    assert lines[:-1] == [CountedWord(word) for word in TEXT.split()]
    assert (type(lines[-1]), lines[-1].model) == (CountEnd, "fake")


def test_it_is_served_in_this_process(local: LocalReplica) -> None:
    check(*ask(local, all_ways))


def test_the_replica_of_other_tests_answers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RESULTS, COUNTING.name, count)
    check(*ask(MemoryReplica(FAKE_INFO), all_ways))


def test_it_is_served_by_a_fleet_of_other_processes(local: LocalReplica) -> None:
    served = ReplicaApp()
    served.bind(local)
    with on_a_socket(served) as url:

        async def scene() -> Any:
            remote = HttpReplica(url)
            fleet = Fleet({"remote": remote}, view(FleetOptions))
            transport = httpx.ASGITransport(gateway_of(fleet))
            try:
                async with AsyncClient("http://test", transport=transport) as client:
                    return await all_ways(client)
            finally:
                await fleet.close()
                await remote.close()

        check(*asyncio.run(scene()))


def test_the_client_without_an_event_loop_calls_it(local: LocalReplica) -> None:
    with on_a_socket(gateway_of(local)) as url, Client(url) as client:
        one = client.run("count", TEXT, min_chars=3, request_id="r")
        batch = client.run_batch("count", [TEXT, "to be", "x" * 101], min_chars=3)
        check(one, batch, list(client.run_stream("count", TEXT, min_chars=2)))
        assert client.extract("Ada", ["person"]).entities[0].text == "Ada"


def test_its_fields_are_checked_like_those_of_extraction(local: LocalReplica) -> None:
    async def scene(client: AsyncClient) -> list[str]:
        return [
            await refusal(client, **options) for options in ({}, {"min_chars": 0}, {"min_chars": 1, "max_chars": 2})
        ]

    async def refusal(client: AsyncClient, **options: Any) -> str:
        with pytest.raises(InvalidField) as caught:
            await client.run("count", TEXT, **options)
        return str(caught.value.message)

    assert ask(local, scene) == [
        "min_chars: Field required",
        "min_chars: Input should be greater than or equal to 1",
        "max_chars: unknown field (did you mean 'min_chars'?)",
    ]


def test_items_of_a_batch_have_options_of_their_own(local: LocalReplica) -> None:
    async def scene(client: AsyncClient) -> Any:
        body = {"items": [{"text": TEXT}, {"text": TEXT, "min_chars": 1}], "min_chars": 3}
        return (await client._http.post("/v1/count/batch", json=body)).json()

    assert [len(one["result"]["words"]) for one in ask(local, scene)["results"]] == [1, 4]


def test_its_routes_are_documented(local: LocalReplica) -> None:
    document = json.loads(gateway_of(local).document)
    assert {"/v1/count", "/v1/count/stream", "/v1/count/batch"} <= set(document["paths"])
    answer = document["components"]["schemas"]["CountResponse"]
    assert list(answer["properties"]) == ["words", "usage", "warnings", "model", "adapter_id", "request_id"]
    assert {"name": "count", "description": "Words in texts."} in document["tags"]


def test_messages_between_processes_are_tagged_with_the_task() -> None:
    items, result = [CountItem(TEXT, 3, adapter_id="a")], Count(WORDS, usage=Usage(1))
    read, call = ItemsMessage.read(ItemsMessage.of(items, Call("r", time.monotonic() + 1)))
    assert (read, call.request_id) == (items, "r")
    outcomes, tokens_run = OutcomesMessage.read(b"".join(OutcomesMessage.of([NotReady("x"), result], 7)))
    assert (type(outcomes[0]), asdict(outcomes[1]), tokens_run) == (NotReady, {**asdict(result), "warnings": []}, 7)
    assert StreamMessage.read(StreamMessage.of("count", ["to"], 8)) == (["to"], 8)


def test_a_model_that_does_not_support_it_is_named() -> None:
    preparer = ItemPreparer(None, None, "some-model", ("entities",))
    with pytest.raises(InvalidField, match="some-model does not support the task count"):
        preparer.checked(CountItem(TEXT, 3))

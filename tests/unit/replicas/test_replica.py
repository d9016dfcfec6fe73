"""The `Replica` contract: items in, outcomes out; abort and status. The same for every kind of replica."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from doubles.fake_engine import extract, words_and_labels
from replica_calls import call, item, run, until
from serving import LONG, LONG_PASSES, Serving

from gliner_bento.errors import (
    Aborted,
    AdapterNotFound,
    DeadlineExceeded,
    DoesNotFit,
    InternalError,
    InvalidField,
    NotReady,
    QueueFull,
)
from gliner_bento.replicas.base import ReplicaStatus
from gliner_bento.status_types import ModelInfo

Start = Callable[..., Serving]


def test_there_is_one_outcome_per_item_in_order(serving: Serving):
    serving.release()
    items = [item(f"Ada met {name}") for name in ("Charles", "Mary", "nobody")] + [item(""), item(" ")]
    outcomes = run(lambda: serving.replica.extract(items, call()))
    assert [list(outcome.entities) for outcome in outcomes] == [extract(one).entities for one in items]


def test_no_items_have_no_outcomes(serving: Serving):
    assert list(run(lambda: serving.replica.extract([], call()))) == []


def test_an_outcome_holds_all_of_an_extraction(serving: Serving):
    serving.release()
    requested = item("Ada met Charles", relations={"met": "met"})
    (outcome,) = run(lambda: serving.replica.extract([requested], call()))
    assert list(outcome.relations) == extract(requested).relations
    assert (outcome.usage.words, outcome.usage.tokens) == (3, 4)
    assert (outcome.truncated, outcome.truncated_at) == (False, None)


def test_the_tokens_of_all_that_ran_are_counted(serving: Serving):
    serving.release()
    before = serving.replica.tokens_run
    run(lambda: serving.replica.extract([item("Ada met"), item("Ada")], call()))
    assert serving.replica.tokens_run - before == 3 + 2
    run(lambda: serving.replica.extract([item(LONG)], call()))
    assert serving.replica.tokens_run - before == 5 + words_and_labels(item(LONG)) + LONG_PASSES - 1


def test_an_item_of_several_passes_has_one_outcome(serving: Serving):
    serving.release()
    (outcome,) = run(lambda: serving.replica.extract([item(LONG)], call()))
    assert list(outcome.entities) == extract(item(LONG)).entities
    assert (outcome.usage.words, outcome.usage.windows) == (400, LONG_PASSES)
    assert len(serving.passes) == LONG_PASSES


@pytest.mark.parametrize(
    "error",
    [
        InvalidField("labels: wrong", param="labels.0"),
        DoesNotFit("the item needs more memory"),
        AdapterNotFound("nobody", param="adapter_id"),
    ],
    ids=lambda error: error.code,
)
def test_an_error_is_a_value_with_class_message_and_param(start: Start, error):
    serving = start(error=lambda one: error if "bad" in one.text else None)
    serving.release()
    items = [item("Ada"), item("bad Ada"), item("Bob")]
    first, failed, last = run(lambda: serving.replica.extract(items, call()))
    assert (type(failed), failed.message, failed.param) == (type(error), error.message, error.param)
    assert [outcome.entities[0].text for outcome in (first, last)] == ["Ada", "Bob"]


def test_a_fault_is_an_internal_error_that_shows_nothing(start: Start):
    serving = start(error=lambda one: ValueError("a secret"))
    serving.release()
    (failed,) = run(lambda: serving.replica.extract([item()], call()))
    assert type(failed) is InternalError
    assert "secret" not in failed.message


def test_an_unknown_adapter_is_an_error_of_its_item(serving: Serving):
    serving.release()
    items = [item(), item(adapter_id="nobody")]
    good, bad = run(lambda: serving.replica.extract(items, call()))
    assert good.entities
    assert (type(bad), bad.param) == (AdapterNotFound, "adapter_id")


def test_a_refusal_concerns_all_items_of_a_call(start: Start):
    serving = start(queue_capacity=4)

    async def scene():
        filling = asyncio.ensure_future(serving.replica.extract([item()] * 4, call()))
        await until(lambda: len(serving.prepared) == 4)
        refused = await serving.replica.extract([item("Refused")] * 4, call())
        serving.release()
        return refused, await filling

    refused, filled = run(scene)
    assert [type(outcome) for outcome in refused] == [QueueFull] * 4
    assert all(outcome.entities for outcome in filled)
    assert "Refused" not in serving.prepared


def test_an_item_that_is_late_on_arrival_is_never_run(serving: Serving):
    serving.release()
    outcomes = run(lambda: serving.replica.extract([item(), item()], call(timeout_s=-1)))
    assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 2
    assert not serving.passes


def test_items_end_by_the_deadline_wherever_they_are(serving: Serving):
    began_s = time.monotonic()
    outcomes = run(lambda: serving.replica.extract([item()] * 5, call(timeout_s=0.05)))
    assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 5
    assert time.monotonic() - began_s >= 0.05
    serving.release()
    assert run(lambda: serving.replica.extract([item()], call()))[0].entities


def test_a_lower_priority_value_is_scheduled_earlier(serving: Serving):
    async def scene():
        def ask(text, priority):
            return asyncio.ensure_future(serving.replica.extract([item(text)], call(text, priority=priority)))

        running = [ask(f"Filler{number}", 0) for number in range(4)]
        await until(lambda: len(serving.prepared) == 4)
        waiting = [ask("Late", 5), ask("Early", -5), ask("Last", 9)]
        await until(lambda: {"Late", "Early", "Last"} <= set(serving.prepared))
        waiting.append(ask("Behind", 9))  # one thread prepares: when it has this item, those before it are in the queue
        await until(lambda: "Behind" in serving.prepared)
        serving.release()
        await asyncio.gather(*running, *waiting)

    run(scene)
    ran = [text for text in serving.passes if not text.startswith("Filler")]
    assert ran == ["Early", "Late", "Last", "Behind"]


def test_tenants_share_the_replica_fairly(serving: Serving):
    async def scene():
        def ask(text, **tenant):
            return asyncio.ensure_future(serving.replica.extract([item(text)], call(text, **tenant)))

        running = [ask(f"Filler{number}") for number in range(4)]
        await until(lambda: len(serving.prepared) == 4)
        flood = [ask(f"Flood{number}", tenant="a", priority=-1) for number in range(6)]
        await until(lambda: len(serving.prepared) == 10)
        others = [ask("Other", tenant="b"), ask("Operator", tenant="c", priority=-1, crosses_tenants=True), ask("Last")]
        await until(lambda: len(serving.prepared) == 13)
        serving.release()
        await asyncio.gather(*running, *flood, *others)

    run(scene)
    ran = [text for text in serving.passes if not text.startswith("Filler")]
    assert "Operator" in ran[:2]  # one batch may have been collated ahead
    assert "Other" in ran[:4]


def test_abort_ends_every_item_of_a_request_and_no_other(serving: Serving):
    async def scene():
        requested = [
            asyncio.ensure_future(serving.replica.extract([item(), item()], call(name))) for name in ("a", "b", "a")
        ]
        await until(lambda: len(serving.prepared) == 6)
        assert await serving.replica.abort("a") is True
        first, third = await requested[0], await requested[2]
        serving.release()
        return [*first, *third], await requested[1], await serving.replica.abort("a"), await serving.replica.abort("c")

    aborted, others, *again = run(scene)
    assert [type(outcome) for outcome in aborted] == [Aborted] * 4
    assert all(outcome.entities for outcome in others)
    assert again == [False, False]


def test_a_cancelled_call_aborts_its_items(serving: Serving):
    async def scene():
        requested = asyncio.ensure_future(serving.replica.extract([item("Gone Gone")] * 5, call("a")))
        await until(lambda: len(serving.prepared) == 5)
        requested.cancel()
        with pytest.raises(serving.cancelled):
            await requested
        await until(lambda: serving.unfinished == 0)
        serving.release()
        return await serving.replica.extract([item()], call("b"))

    assert run(scene)[0].entities
    assert len(serving.passes) <= 3, "what ran, what was collated ahead, and the next request's"


def test_calls_run_concurrently(serving: Serving):
    async def scene():
        requested = [asyncio.ensure_future(serving.replica.extract([item()], call(str(i)))) for i in range(20)]
        await until(lambda: len(serving.prepared) == 20)
        assert not any(one.done() for one in requested)
        serving.release()
        return await asyncio.gather(*requested)

    assert all(outcome.entities for (outcome,) in run(scene))


def test_the_status_shows_the_model_and_an_idle_replica(serving: Serving):
    status = run(serving.replica.status)
    assert isinstance(status, ReplicaStatus)
    assert isinstance(status.model, ModelInfo)
    assert (status.model.device, status.model.dtype, status.model.supports_relations) == ("cpu", "float32", True)
    assert (status.ready, status.waiting_items, status.running_items) == (True, 0, 0)
    assert (status.waiting_tokens, status.running_tokens) == (0, 0)


def busy_status(serving: Serving, settled: Callable[[ReplicaStatus], bool]) -> ReplicaStatus:
    """Of a replica with four items of four tokens each, of which none can end, once it is `settled`."""

    async def scene():
        requested = asyncio.ensure_future(serving.replica.extract([item()] * 4, call()))
        statuses = []

        async def is_settled():
            statuses.append(await serving.replica.status())
            return settled(statuses[-1])

        await until(is_settled)
        serving.release()
        await requested
        await until(serving.idle)
        return statuses[-1]

    return run(scene)


def test_the_status_counts_items_that_wait_and_run(serving: Serving):
    status = busy_status(serving, lambda status: status.running_items > 0)
    assert status.waiting_items + status.running_items == 4
    assert status.waiting_items > 0


def test_the_status_counts_tokens_that_wait_and_run(serving: Serving):
    tokens = words_and_labels(item())
    status = busy_status(
        serving,
        lambda status: status.running_tokens > 0 and status.waiting_tokens + status.running_tokens == 4 * tokens,
    )
    assert status.running_tokens == tokens * status.running_items
    assert status.waiting_tokens == tokens * status.waiting_items


def test_a_replica_whose_lane_died_is_not_ready_and_admits_nothing(serving: Serving):
    async def scene():
        assert (await serving.replica.status()).ready is True
        await serving.kill_lane()
        await until(lambda: _is_unready(serving))
        return await serving.replica.extract([item(), item()], call())

    assert [type(outcome) for outcome in run(scene)] == [NotReady] * 2


async def _is_unready(serving: Serving) -> bool:
    return not (await serving.replica.status()).ready


def test_a_closed_replica_ends_what_is_left_and_is_not_ready(serving: Serving):
    async def scene():
        requested = asyncio.ensure_future(serving.replica.extract([item()] * 3, call()))
        await until(lambda: len(serving.prepared) == 3)
        closing = asyncio.ensure_future(asyncio.to_thread(serving.close))
        outcomes = await requested
        serving.release()
        await closing
        return outcomes, await serving.replica.status(), await serving.replica.extract([item()], call())

    outcomes, status, later = run(scene)
    assert [type(outcome) for outcome in outcomes] == [NotReady] * 3
    assert status.ready is False
    assert type(later[0]) is NotReady

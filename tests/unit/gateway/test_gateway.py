"""The gateway: limits, defaults, shapes; each error names its field."""

import asyncio
import math
import re
import time
from concurrent.futures import wait
from dataclasses import replace

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.errors import (
    Aborted,
    AdapterNotFound,
    DeadlineExceeded,
    InternalError,
    InvalidField,
    NotReady,
    StartupError,
    TooLarge,
)
from gliner_bento.gateway import handler
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.tasks.labels import relation_options
from gliner_bento.tasks.requests import ExtractBatchRequest, ExtractRequest
from gliner_bento.tasks.requests import request_of as request_of_body

TEXT = "Ada met Charles."


def request_of(**fields):
    body = {"text": TEXT, "labels": ["person"]} | fields
    return request_of_body(vars(ExtractRequest.model_validate(body)))


def extract(gateway, context=None, **fields):
    return asyncio.run(gateway.run(context or Context(), request_of(**fields)))


def extract_batch(gateway, context=None, **fields):
    body = vars(ExtractBatchRequest.model_validate(fields))

    async def run():
        about = context or Context()
        return await gateway.run_batch(about, await gateway.batch_of(about, body))

    return asyncio.run(run())


def test_an_answer_has_entities_relations_and_what_was_run(gateway):
    answer = extract(gateway, relations=["met"], request_id="r1")
    assert [(e.text, e.label) for e in answer.entities] == [("Ada", "person"), ("Charles", "person")]
    relation = answer.relations[0]
    assert (relation.head.text, relation.relation, relation.tail.text) == ("Ada", "met", "Charles")
    assert relation.tail.entity_idx == 1
    assert (answer.usage.words, answer.usage.windows, answer.usage.label_groups) == (3, 1, 1)
    assert (answer.usage.relation_groups, extract(gateway).usage.relation_groups) == (1, 0)
    assert (answer.truncated, answer.truncated_at) == (False, None)
    assert (answer.model, answer.request_id, answer.adapter_id) == ("memory", "r1", None)


def test_a_blank_text_was_read_in_no_window(gateway):
    assert extract(gateway, text="  ").usage.windows == 0


def test_a_long_text_is_processed_in_full_unless_it_is_to_be_truncated(gateway):
    long = "one two three four five six seven eight nine"
    whole, cut = extract(gateway, text=long), extract(gateway, text=long, long_text="truncate")
    assert (whole.truncated, whole.truncated_at, whole.usage.windows) == (False, None, 2)
    assert (cut.truncated, cut.truncated_at, cut.usage.windows) == (True, 39, 1)


def test_the_window_options_reach_the_replica(gateway, replica):
    extract(gateway)
    extract(gateway, long_text="reject", window_words=64, window_overlap_words=0)
    items = [{"text": "Ada", "window_words": 8}, {"text": "Bob"}]
    extract_batch(gateway, items=items, labels=["person"], window_words=9, window_overlap_words=3)
    items = [item for sent, _ in replica.calls for item in sent]
    assert [(item.long_text, item.window_words, item.window_overlap_words) for item in items] == [
        ("window", None, None),
        ("reject", 64, 0),
        ("window", 8, 3),
        ("window", 9, 3),
    ]


def test_the_limits_of_an_answer_reach_the_replica(gateway, replica):
    extract(gateway, on_limit="truncate")
    extract_batch(gateway, texts=["Ada", "Bob met A"], labels=["person"])
    items = [item for sent, _ in replica.calls for item in sent]
    assert [(item.on_limit, item.max_entities, item.max_relations) for item in items] == [
        ("truncate", 1000, 200),
        ("error", 350, 150),  # a quarter of the characters, and 100
        ("error", 850, 200),
    ]


def test_absent_thresholds_are_the_servers(gateway, replica):
    extract(gateway)
    item = replica.calls[0][0][0]
    assert (item.threshold, item.relation_threshold) == (0.4, 0.6)


def test_a_threshold_of_zero_is_a_threshold(gateway, replica):
    extract(gateway, threshold=0, relation_threshold=0)
    item = replica.calls[0][0][0]
    assert (item.threshold, item.relation_threshold) == (0, 0)


def test_a_label_given_twice_counts_once(gateway, replica):
    extract(gateway, labels=["person", "city", "person"])
    assert list(replica.calls[0][0][0].labels) == ["person", "city"]


def test_a_deadline_can_shorten_but_not_stretch_the_servers(gateway, replica):
    began_s = time.monotonic()
    extract(gateway, timeout_ms=20_000)
    extract(gateway, timeout_ms=10**9)
    extract(gateway)
    ended_s = time.monotonic()
    shortened_s, longest_s, absent_s = (call.deadline_s for _, call in replica.calls)
    assert began_s + 20 <= shortened_s <= ended_s + 20
    for deadline_s in (longest_s, absent_s):
        assert began_s + 30 <= deadline_s <= ended_s + 30


def test_a_streams_total_is_timeout_ms_and_the_servers_limit_that_of_a_time_without_progress(gateway, replica):
    async def stream(**options):
        return [
            line async for lines in gateway.run_stream(Context(), request_of(text="Ada", **options)) for line in lines
        ]

    began_s = time.monotonic()
    asyncio.run(stream(timeout_ms=90_000))
    asyncio.run(stream())
    (_, limited), (_, unlimited) = replica.calls
    assert began_s + 90 <= limited.deadline_s <= time.monotonic() + 90
    assert (unlimited.deadline_s, unlimited.idle_timeout_s, limited.idle_timeout_s) == (math.inf, 30, 30)


def test_the_deadline_counts_from_the_request_and_not_from_the_replicas_first_answer(gateway, replica):
    """The first request also asks for the model."""
    status, asked_s = replica.status, []

    async def slow():
        asked_s.append(time.monotonic())
        await asyncio.sleep(0.05)
        return await status()

    replica.status = slow
    extract(gateway, timeout_ms=10_000)
    assert replica.calls[0][1].deadline_s <= asked_s[0] + 10


def test_the_priority_reaches_the_replica(gateway, replica):
    extract(gateway, priority=-3)
    assert replica.calls[0][1].priority == -3


@pytest.mark.parametrize(
    ("texts", "crosses_tenants", "given", "expected"),
    [
        ([TEXT] * 32, False, -1000, -1000),
        ([TEXT] * 33, False, -1000, 0),
        (["a" * 7999], False, -1, -1),
        (["a" * 8000], False, -1, 0),
        (["a" * 8000], False, 7, 7),
        (["a" * 8000], True, -1, -1),
    ],
)
def test_a_large_request_does_not_hold_up_its_tenant(replica, texts, crosses_tenants, given, expected):
    """But one whose key may pass all tenants."""
    gateway = Gateway(replica, replace(OPTIONS, max_text_chars=8000, max_batch_items=33))

    context = Context(tenant=Tenant("a", crosses_tenants=crosses_tenants))
    extract_batch(gateway, context, texts=texts, labels=["person"], priority=given)
    assert replica.calls[0][1].priority == expected


def test_the_tenant_reaches_the_replica(gateway, replica):
    extract(gateway, Context(tenant=Tenant("team-a", crosses_tenants=True, weight=2.0)))
    call = replica.calls[0][1]
    assert (call.tenant, call.weight, call.crosses_tenants) == ("team-a", 2.0, True)


def test_options_of_labels_and_relations_reach_the_item(gateway, replica):
    labels = {"person": {"threshold": 0.4}, "org": {"description": "organization"}, "city": "a town", "date": {}}
    relations = {
        "works at": {"threshold": 0, "head": ["person"], "tail": ["org", "city", "org"], "description": "employer"},
        "knows": "acquaintance",
        "in": {"tail": ["city"], "threshold": None},
    }
    extract(gateway, labels=labels, relations=relations, threshold=0.9)
    ((item,), _) = replica.calls[0]
    assert item.labels == {"person": "person", "org": "organization", "city": "a town", "date": "date"}
    assert list(item.labels) == list(labels)
    assert item.relations == {"works at": "employer", "knows": "acquaintance", "in": "in"}
    assert (item.threshold, item.label_thresholds, item.relation_thresholds) == (0.9, {"person": 0.4}, {"works at": 0})
    assert item.relation_heads == {"works at": [0]}
    assert item.relation_tails == {"works at": [1, 2], "in": [2]}


@pytest.mark.parametrize(
    ("named", "suggestion"), [("persn", " (did you mean 'person'?)"), ("qqq", ""), ("x" * 101, "")]
)
def test_a_head_or_tail_that_is_no_label_is_named(gateway, replica, named, suggestion):
    labels, relations = ["person", "x" * 1000], {"works at": {"tail": ["person", named]}}
    with pytest.raises(InvalidField) as caught:
        extract(gateway, labels=labels, relations=relations)
    assert caught.value.param == "relations.works at.tail.1"
    assert caught.value.message == f"relations.works at.tail.1: not one of the request's labels{suggestion}"
    answer = extract_batch(gateway, items=[{"text": "Ada", "relations": relations}], labels=labels)
    assert answer.results[0].error.param == "items.0.relations.works at.tail.1"
    assert not replica.calls


def test_heads_and_tails_are_limited():
    names = [f"label {number}" for number in range(11)]
    wide = {name: {"head": names} for name in names}
    with pytest.raises(InvalidField, match="relations: 121 labels in all lists 'head'; the limit is 110"):
        relation_options(wide, names, max_labels=11)
    assert len(relation_options(wide, names, max_labels=13)["relation_heads"]) == 11


def test_the_error_of_the_item_is_raised(gateway):
    with pytest.raises(AdapterNotFound):
        extract(gateway, adapter_id="unknown")


def test_the_base_adapter_is_no_adapter(gateway, replica):
    assert extract(gateway, adapter_id="__base__").adapter_id is None
    items = [{"text": "Ada", "adapter_id": "__base__"}, {"text": "Bob"}]
    extract_batch(gateway, items=items, labels=["person"], adapter_id="__base__")
    assert [item.adapter_id for sent, _ in replica.calls for item in sent] == [None, None, None]


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"text": "x" * 101}, TooLarge, "text"),
        ({"labels": [f"label {i}" for i in range(6)]}, InvalidField, "labels"),
        ({"relations": [f"relation {i}" for i in range(6)]}, InvalidField, "relations"),
    ],
)
def test_what_is_over_a_limit_never_reaches_the_replica(gateway, replica, fields, error, param):
    with pytest.raises(error) as caught:
        extract(gateway, **fields)
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param}: ")
    assert not replica.calls


def test_a_batch_answers_one_result_or_error_per_text_in_order(gateway):
    items = [{"text": "Ada"}, {"text": "Bob", "adapter_id": "unknown"}, {"text": "y" * 101}]
    answer = extract_batch(gateway, items=items, labels=["person"], request_id="r2")
    assert answer.results[0].result.entities[0].text == "Ada"
    assert answer.results[1].error.code == "adapter_not_found"
    assert [result.error.param for result in answer.results[1:]] == ["items.1.adapter_id", "items.2.text"]
    assert answer.results[2].error.message.startswith("items.2.text: 101 characters")
    assert {result.error.request_id for result in answer.results[1:]} == {"r2"}


def test_an_items_own_options_win_over_the_batchs(gateway, replica):
    items = [{"text": "Ada", "labels": ["name"], "threshold": 0.1, "flat_ner": False}, {"text": "Bob"}]
    extract_batch(gateway, items=items, labels=["person"], threshold=0.9)
    own, shared = replica.calls[0][0]
    assert (list(own.labels), own.threshold, own.flat_ner) == (["name"], 0.1, False)
    assert (list(shared.labels), shared.threshold, shared.flat_ner) == (["person"], 0.9, True)


@pytest.mark.parametrize("fields", [{"labels": ["x"]}, {"texts": ["a"], "items": [{"text": "a"}], "labels": ["x"]}])
def test_a_batch_is_texts_or_items(gateway, fields):
    with pytest.raises(InvalidField, match="either texts or items"):
        extract_batch(gateway, **fields)


def test_an_error_of_a_text_names_its_place(gateway):
    answer = extract_batch(gateway, texts=["Ada", "y" * 101], labels=["person"])
    assert answer.results[1].error.param == "texts.1"
    assert answer.results[1].error.message.startswith("texts.1: 101 characters")


def test_an_error_of_what_texts_share_names_the_shared_field(gateway):
    answer = extract_batch(gateway, texts=["Ada", "Bob"], labels=["person"], adapter_id="unknown")
    assert [result.error.param for result in answer.results] == ["adapter_id", "adapter_id"]


def test_a_batch_of_texts_needs_labels(gateway):
    with pytest.raises(InvalidField, match="labels: Field required"):
        extract_batch(gateway, texts=["Ada"])


def test_a_batch_without_texts_is_answered_without_results(gateway, replica):
    assert extract_batch(gateway, texts=[], labels=["x"]).results == []
    assert not replica.calls


def test_a_batch_has_at_most_max_batch_items(gateway):
    with pytest.raises(TooLarge, match="4 texts; the limit is 3"):
        extract_batch(gateway, texts=["a"] * 4, labels=["x"])


def test_an_item_without_labels_is_named(gateway):
    answer = extract_batch(gateway, items=[{"text": "a", "labels": ["x"]}, {"text": "b"}])
    assert answer.results[0].result is not None
    assert answer.results[1].error.param == "items.1.labels"


def test_the_card_has_the_model_and_the_limits(gateway):
    card = asyncio.run(gateway.models.default.card())
    assert (card.model, card.dtype, card.max_labels, card.max_text_chars) == ("memory", "float32", 5, 100)


def test_abort_returns_whether_there_was_a_request(gateway, replica):
    async def scene():
        replica.step = lambda: False
        running = asyncio.ensure_future(gateway.run(Context(), request_of(request_id="mine")))
        while not replica.admitted:
            await asyncio.sleep(0)
        answers = [await gateway.abort(Context(), "unknown"), await gateway.abort(Context(), "mine")]
        with pytest.raises(Aborted):
            await running
        return [*answers, await gateway.abort(Context(), "mine")]

    answers = asyncio.run(scene())
    assert [(answer.request_id, answer.aborted) for answer in answers] == [
        ("unknown", False),
        ("mine", True),
        ("mine", False),
    ]


def test_the_model_is_requested_once(gateway, replica):
    requested = []
    status = replica.status

    async def counted():
        requested.append(None)
        return await status()

    replica.status = counted
    for _ in range(3):
        extract(gateway)
        asyncio.run(gateway.models.default.card())
    assert len(requested) == 1


def test_readiness_is_requested_every_time(gateway, replica):
    assert asyncio.run(gateway.ready()) is True
    replica.alive = False
    assert asyncio.run(gateway.ready()) is False
    replica.alive = True
    assert asyncio.run(gateway.ready()) is True


def test_a_replica_that_cannot_be_reached_is_not_ready(gateway, replica):
    async def unreachable():
        raise NotReady("the model's process cannot be reached; try again")

    replica.status = unreachable
    assert asyncio.run(gateway.ready()) is False
    with pytest.raises(NotReady):
        extract(gateway)


def test_a_request_starts_no_refresh_where_models_cannot_change(gateway):
    async def scene():
        before = asyncio.all_tasks()
        for _ in range(3):
            await gateway.models.find(None)
        return asyncio.all_tasks() - before

    assert not asyncio.run(scene())


def test_a_request_waits_for_a_replica_that_has_not_answered_yet(gateway, replica):
    """As a fleet does, whose `status` raises until then."""
    status, run = replica.status, replica.extract

    async def not_yet():
        raise NotReady("no replica has answered yet; try again")

    async def wait_and_run(items, call):
        replica.status = status
        return await run(items, call)

    replica.status, replica.extract = not_yet, wait_and_run
    assert extract(gateway).entities


def test_an_abort_reaches_the_model_of_the_request_while_another_one_does_not_answer(replica, options):
    async def unreachable(_):
        raise NotReady("no replica")

    lost = MemoryReplica()
    lost.abort = unreachable
    gateway = Gateway({"lost": lost, "other": replica}, options)

    async def scene():
        replica.step = lambda: False
        running = asyncio.ensure_future(gateway.run(Context(model="other"), request_of(request_id="mine")))
        while not replica.admitted:
            await asyncio.sleep(0)
        assert (await gateway.abort(Context(), "mine")).aborted
        with pytest.raises(Aborted):
            await running
        with pytest.raises(NotReady):
            await gateway.abort(Context(), "mine")

    asyncio.run(scene())


HANDLER = """
import threading
from dataclasses import replace

from gliner_bento.errors import InvalidField
from gliner_bento.tasks.base import Item
from gliner_bento.tasks.extraction import Extraction


RELEASED = threading.Event()


def preprocess(item: Item) -> Item:
    if item.text == "refused":
        raise InvalidField("text: not allowed here", param="text")
    if item.text == "fault":
        raise RuntimeError("Ada")
    if item.text == "exit":
        raise SystemExit(1)
    if item.text == "wrong":
        return item.text
    if item.text == "hang":
        RELEASED.wait()
    return replace(item, text=item.text.replace("Miss", "Ada "))


def postprocess(item: Item, result: Extraction) -> Extraction:
    kept = [one for one in result.entities if one.text != "Charles"]
    return replace(result, entities=kept, relations=())
"""


@pytest.fixture
def handled(replica, tmp_path, monkeypatch):
    """A gateway whose handler, in two threads, replaces "Miss" and leaves out "Charles"."""
    monkeypatch.setattr(handler, "_THREADS", 2)
    path = tmp_path / "handler.py"
    path.write_text(HANDLER, encoding="utf-8")
    return Gateway(replica, replace(OPTIONS, handler=path))


def release(handled):
    """Let the handler's hanging calls end."""
    handled._handler._functions["preprocess"].__globals__["RELEASED"].set()


def test_a_handler_changes_items_and_results_on_every_route(handled, replica):
    assert [one.text for one in extract(handled, text="Miss met Charles.").entities] == ["Ada"]
    assert replica.admitted == ["Ada  met Charles."]
    batch = extract_batch(handled, texts=["Miss met Charles.", "Charles"], labels=["person"])
    assert [[one.text for one in row.result.entities] for row in batch.results] == [["Ada"], []]

    async def streamed():
        return [line for lines in [one async for one in handled.run_stream(Context(), request_of())] for line in lines]

    *entities, end = asyncio.run(streamed())
    assert [line.entity.text for line in entities] == ["Ada"]
    assert end.usage.words == 3


def test_a_fault_of_a_handler_fails_its_text_alone(handled, replica, caplog):
    texts = ["refused", "fault", "Ada"]
    errors = [row.error for row in extract_batch(handled, texts=texts, labels=["person"]).results]
    assert [error and error.code for error in errors] == ["invalid_field", "internal", None]
    assert errors[0].message == "texts.0: not allowed here"
    assert errors[1].message == "the handler's preprocess failed; the server's log has the details"
    assert "RuntimeError: Ada" in caplog.text
    for text, message in (("wrong", "preprocess returned str, not ExtractionItem"), ("exit", "preprocess failed")):
        with pytest.raises(InternalError, match=message):
            extract(handled, text=text)
    with pytest.raises(DeadlineExceeded, match="before the handler's preprocess finished"):
        extract(handled, text="hang", timeout_ms=10)
    release(handled)
    assert replica.admitted == ["Ada"]


def test_a_handler_that_hangs_in_all_threads_is_an_error_until_it_ends(handled, caplog):
    while len(handled._handler._hanging) < 2:  # a deadline may pass before the handler has begun
        with pytest.raises(DeadlineExceeded):
            extract(handled, text="hang", timeout_ms=10)
    with pytest.raises(NotReady, match="hangs in all of its 2 threads"):
        extract(handled, text="Ada")
    assert "preprocess runs past its deadline in 2 threads" in caplog.text
    hanging = handled._handler._hanging
    release(handled)
    wait(hanging)
    assert extract(handled, text="Ada").entities


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_here", "handler.py: ModuleNotFoundError: No module named 'nothing_here'"),
        ("x = 1", "handler.py: has neither preprocess nor postprocess"),
        ("raise SystemExit('no')", "handler.py: SystemExit: no"),
    ],
)
def test_a_handler_that_cannot_be_loaded_ends_the_start(replica, tmp_path, code, message):
    path = tmp_path / "handler.py"
    path.write_text(code, encoding="utf-8")
    with pytest.raises(StartupError, match=message):
        Gateway(replica, replace(OPTIONS, handler=path))


def test_the_handler_of_the_docs_runs(replica, tmp_path):
    page = (PROJECT_ROOT / "docs" / "several-models.md").read_text(encoding="utf-8")
    (code,) = (
        one for one in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "preprocess" in one
    )
    path = tmp_path / "handler.py"
    path.write_text(code, encoding="utf-8")
    gateway = Gateway(replica, replace(OPTIONS, handler=path))
    assert [one.text for one in extract(gateway, text="Ada\u00a0met Nobody.").entities] == ["Ada"]
    assert replica.admitted == ["Ada met Nobody."]
    with pytest.raises(InvalidField, match="text: is confidential"):
        extract(gateway, text="CONFIDENTIAL: Ada")

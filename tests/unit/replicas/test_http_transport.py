"""The transport between gateway and runner: framing, deadlines, and no foreign exception beyond it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles.memory_replica import MemoryReplica
from doubles.scripted_server import HANG, RESULT, Drop, Scripted, ask, in_pieces
from replica_calls import call, item, run, until
from serving import served

from gliner_bento.commands import RemoveAdapter
from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    StorageFull,
)
from gliner_bento.privacy.lists import ListEntry
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.replicas import remote
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.messages import (
    Frames,
    ItemsMessage,
    OutcomesMessage,
    Reply,
    encode,
    frame,
)
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.structures import StructureField

# Frames


@pytest.mark.parametrize("size", [1, 2, 17, 10_000])
def test_frames_may_be_cut_and_merged_anywhere(size: int):
    messages = [b"one", b"", b"x" * 70_000, b"\n\0", b"last"]
    frames = Frames()
    pieces = in_pieces(b"".join(map(frame, messages)), size)
    assert [message for piece in pieces for message in frames.add(piece)] == messages


def test_a_frame_is_complete_with_its_last_byte():
    content, frames = frame(b"abc"), Frames()
    for piece in in_pieces(content[:-1], 1):
        assert list(frames.add(piece)) == []
    assert list(frames.add(content[-1:])) == [b"abc"]


@pytest.mark.parametrize(
    "outcome",
    [RESULT, Extraction(()), Aborted("stopped"), StorageFull("no room", param="adapter")],
    ids=["a result", "an empty result", "an error", "an error of a field"],
)
def test_an_outcome_survives_the_transport(outcome):
    sent = encode([Reply.of(outcome)])
    (reply,) = msgspec.msgpack.decode(sent, type=list[Reply[Extraction]])
    arrived = reply.outcome()
    assert type(arrived) is type(outcome)
    if isinstance(outcome, GLiNERBentoError):
        assert arrived.detail() == outcome.detail()
        with pytest.raises(type(outcome)):
            reply.unwrap()
    else:
        assert [list(arrived.entities), list(arrived.relations)] == [list(outcome.entities), list(outcome.relations)]
        assert (arrived.usage, arrived.truncated, arrived.truncated_at) == (
            outcome.usage,
            outcome.truncated,
            outcome.truncated_at,
        )


def test_an_item_survives_the_transport():
    """Every field: none has its default here."""
    sent = Item(
        text="日本 é 🙂\u2028",
        labels={"b": "2", "a": "1"},
        relations={"r": "of"},
        threshold=0.25,
        relation_threshold=1.0,
        flat_ner=False,
        multi_label=True,
        adapter_id="a",
        long_text="reject",
        window_words=7,
        window_overlap_words=0,
        relation_window="sentences",
        relation_window_sentences=3,
        relation_window_overlap_sentences=0,
        on_limit="truncate",
        max_entities=1,
        max_relations=0,
        label_thresholds={"b": 0.1},
        review_band=[0.5, 0.75],
        decoys=["a"],
        relation_thresholds={"r": 0.9},
        relation_heads={"r": [0]},
        relation_tails={"r": [1]},
        classifications={"c": Classification({"x": "1", "y": "2"}, True, 0.5, None, "max", "Which?")},
        overlap="longest",
        across_empty_lines=True,
        structures={"s": {"f": StructureField("of it", "string", 0.5, ("a", "b"))}},
        recognizers={"CREDIT_CARD": "card"},
        phone_regions=["DE"],
        allow_list=[ListEntry("Ada")],
        deny_list=[ListEntry("a+", is_pattern=True, case_sensitive=True, label="b", place="0")],
        allowed=[(0, 2)],
        denied=[LabeledSpan(1, 2, "b")],
    )
    assert all(getattr(sent, field.name) != getattr(item(), field.name) for field in fields(Item))
    ((arrived,), _) = ItemsMessage.read(ItemsMessage.of([sent], call()))
    assert arrived == sent
    assert list(arrived.labels) == ["b", "a"]


# Calls


def extract(replica: HttpReplica) -> Awaitable[Any]:
    return replica.extract([item()], call())


def abort(replica: HttpReplica) -> Awaitable[Any]:
    return replica.abort("r")


ANSWERS = {abort: [encode(Reply(result=True))], extract: [b"".join(OutcomesMessage.of([RESULT], 0))]}
QUESTIONS = pytest.mark.parametrize("question", [abort, extract])


@QUESTIONS
@pytest.mark.parametrize("begun", [True, False])
def test_a_call_whose_connection_was_dropped_is_not_ready(question, begun: bool, tmp_path: Path):
    scripted = Scripted([*[ANSWERS[question][0][:1]] * begun, Drop])
    with pytest.raises(NotReady):
        ask(scripted, tmp_path, question)
    assert len(scripted.requests) == (1 if question is extract else 2), "the fleet repeats an extraction"


@pytest.mark.parametrize("begun", [True, False])
def test_a_call_that_changes_nothing_is_repeated_over_a_new_connection(begun: bool, tmp_path: Path):
    scripted = Scripted(ANSWERS[abort], [*[ANSWERS[abort][0][:1]] * begun, Drop], ANSWERS[abort])

    async def question(replica: HttpReplica) -> None:
        for _ in range(2):
            assert await replica.abort("r")
        assert replica.connection._connections.opened == 2

    ask(scripted, tmp_path, question)
    assert len(scripted.requests) == 3


@QUESTIONS
@pytest.mark.parametrize("over", ["a socket", "tcp"])
def test_a_runner_that_does_not_listen_is_not_ready(question, over: str, tmp_path: Path):
    url = "http://127.0.0.1:1" if over == "tcp" else (tmp_path / "none").as_uri()

    async def scene():
        replica = HttpReplica(url)
        try:
            with pytest.raises(NotReady):
                await question(replica)
        finally:
            await replica.close()

    run(scene)


@QUESTIONS
@pytest.mark.parametrize("status", ["500 Internal Server Error", "404 Not Found"])
def test_any_other_fault_is_an_internal_error_and_is_not_repeated(question, status, tmp_path: Path, caplog):
    scripted = Scripted([b"a secret"], status=status)
    with pytest.raises(InternalError) as caught:
        ask(scripted, tmp_path, question)
    assert len(scripted.requests) == 1
    assert "secret" not in caught.value.message
    assert status[:3] in caplog.text


@QUESTIONS
@pytest.mark.parametrize("script", [[b"\xc1"], []], ids=str)
def test_an_answer_that_cannot_be_decoded_is_an_internal_error(question, script, tmp_path: Path):
    with pytest.raises(InternalError):
        ask(Scripted(script), tmp_path, question)


def test_a_stuck_runner_costs_a_request_its_deadline_and_no_more(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(remote, "GRACE_S", 0.05)
    scripted = Scripted([HANG])

    async def question(replica: HttpReplica) -> None:
        for timeout_s in (0.05, 0.5, 5.0, 25.0):  # on a slow machine it passes before the request arrives
            with pytest.raises(DeadlineExceeded):
                await replica.extract([item()], call(timeout_s=timeout_s))
            if scripted.requests:
                break
        await until(lambda: scripted.left > 0)  # the runner must see that its caller is gone

    ask(scripted, tmp_path, question)


def test_a_stuck_runner_is_not_ready(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(remote, "CONTROL_TIMEOUT_S", 0.05)
    with pytest.raises(NotReady):
        ask(Scripted([HANG]), tmp_path, lambda replica: replica.status())


def test_a_stuck_removal_ends_by_its_deadline(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(remote, "GRACE_S", 0.05)
    with pytest.raises(DeadlineExceeded):
        ask(Scripted([HANG]), tmp_path, lambda replica: replica.apply(RemoveAdapter("a", 0.01)))


def test_the_runner_gets_what_is_left_until_the_deadline(tmp_path: Path):
    memory, app = MemoryReplica(), ReplicaApp()
    app.bind(memory)
    server = served(app, tmp_path / "socket")
    replica = HttpReplica(server.url)
    request = call("mine", timeout_s=50, priority=-3, tenant="team-a", weight=2.5, crosses_tenants=True)
    run(lambda: replica.extract([item()], request))
    arrived_s = time.monotonic()
    run(replica.close)
    server.stop()
    ((items, received),) = memory.calls
    assert list(items) == [item()]
    assert replace(received, deadline_s=request.deadline_s) == request
    assert request.deadline_s <= received.deadline_s <= arrived_s + 50


def test_no_call_waits_for_another(tmp_path: Path):
    """aiohttp's default is 100 connections."""
    memory, app = MemoryReplica(step=lambda: False), ReplicaApp()
    app.bind(memory)
    server = served(app, tmp_path / "socket")
    replica = HttpReplica(server.url)

    async def scene():
        waiting = [asyncio.ensure_future(replica.extract([item()], call(str(number)))) for number in range(300)]
        await until(lambda: len(memory.calls) == 300)
        status = await replica.status()
        assert status.waiting_items + status.running_items == 300
        assert await replica.abort("299")
        assert isinstance((await waiting[299])[0], Aborted)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(scene)
    run(replica.close)
    server.stop()


def test_a_caller_that_left_before_its_body_was_read_is_no_fault(tmp_path: Path, caplog):
    """As those do that wait while the model loads."""
    app, sent = ReplicaApp(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/status", "headers": [], "query_string": b""}
    run(lambda: app(scope, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [499]
    assert caplog.text == ""

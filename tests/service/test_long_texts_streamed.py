"""Streams of long texts over a socket: the transport of other tests hands out an answer when it is whole."""

from __future__ import annotations

import os
import re
import signal

import httpx
import patient
import psutil
import pytest
from long_texts import DOCUMENT, LABELS, RELATIONS, lines_of
from waiting import PATIENCE_S, wait_until

from benchmark.server import Server, tree_of
from gliner_bento.client import Client
from gliner_bento.errors import Aborted, NotReady

ENDLESS = " ".join([DOCUMENT] * 60)  # more than any machine reads while a test looks at its first lines


@pytest.fixture
def server(own_server: Server) -> str:
    return own_server.url


def metric(url: str, name: str) -> float:
    counted = re.search(rf"^{re.escape(name)} (\S+)$", patient.get(f"{url}/metrics").text, re.MULTILINE)
    return float(counted.group(1)) if counted else 0.0


def test_a_stream_begins_while_its_text_is_read_and_an_abort_is_its_last_line(server):
    received = []
    with Client(server) as client, pytest.raises(Aborted):  # noqa: PT012
        for one in client.extract_stream(ENDLESS, LABELS, request_id="endless"):
            if not received:
                assert client.abort("endless").aborted
            received.append(one)
    assert [(entity.start, entity.end, entity.text) for entity in received[:1]] == [(0, 10, "Bill Gates")]
    assert all(ENDLESS[entity.start : entity.end] == entity.text for entity in received)


def test_a_client_that_leaves_a_stream_takes_its_work_along(server):
    aborted = 'gliner_items_total{model="demo",outcome="aborted"}'
    before = metric(server, aborted)
    body = {"text": ENDLESS, "labels": LABELS}
    with httpx.stream("POST", f"{server}/v1/extract/stream", json=body, timeout=PATIENCE_S) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines).startswith('{"entity"')
        wait_until(lambda: metric(server, 'gliner_unfinished_items{model="demo"}') == 1)
    wait_until(lambda: metric(server, aborted) == before + 1)
    wait_until(lambda: metric(server, 'gliner_unfinished_items{model="demo"}') == 0)


def test_a_deadline_that_passes_between_lines_is_the_last_line(server):
    entities, timeout_ms = [], 250
    while not entities:  # on a slow machine, the deadline passes during the first pass, or before an entity is final
        timeout_ms *= 2
        body = {"text": ENDLESS, "labels": LABELS, "timeout_ms": timeout_ms}
        answer = patient.post(f"{server}/v1/extract/stream", json=body)
        if answer.status_code == 504:
            assert answer.json()["error"]["code"] == "deadline_exceeded"
        else:
            *entities, last = lines_of(answer)
            assert last["error"]["code"] == "deadline_exceeded"
            assert last["error"]["request_id"] == answer.headers["x-request-id"]
    assert all(set(received) == {"entity"} for received in entities)


def test_our_client_streams_what_it_extracts(server):
    with Client(server) as client:
        answer = client.extract(DOCUMENT, LABELS, relations=RELATIONS)
        *entities, end = client.extract_stream(DOCUMENT, LABELS, relations=RELATIONS)
    assert [(e.start, e.end, e.text, e.label) for e in entities] == [
        (e.start, e.end, e.text, e.label) for e in answer.entities
    ]
    assert end.usage == answer.usage
    assert [(r.relation, r.head.entity_idx, r.tail.entity_idx) for r in end.relations] == [
        (r.relation, r.head.entity_idx, r.tail.entity_idx) for r in answer.relations
    ]


def test_a_model_process_that_dies_while_it_reads_is_the_last_line(own_server):
    """Whether the process comes back is tested elsewhere."""
    (runner,) = [child for child in tree_of(own_server.pid) if "GLiNERRunner" in child.cmdline()]
    received = []
    with Client(own_server.url) as client, pytest.raises(NotReady):  # noqa: PT012
        for one in client.extract_stream(ENDLESS, LABELS):
            if not received:
                runner.kill()
            received.append(one)
    assert received


def test_a_signal_while_its_model_process_is_replaced_ends_the_server(own_server):
    """Runs right after the test above. BentoML's supervisor forgets a signal that comes meanwhile."""
    os.kill(own_server.pid, signal.SIGTERM)
    assert psutil.Process(own_server.pid).wait(PATIENCE_S) == 0

"""What a served bento shows of itself, beside another server of the same user: metrics, log and traces."""

from __future__ import annotations

import re

import patient
from waiting import wait_until

BODY = {"text": "Bill Gates founded Microsoft in 1975.", "labels": ["person", "organization"]}
COUNTED = re.compile(r'^gliner_http_requests_total.*route="/v1/extract",status="200".* (\S+)$', re.MULTILINE)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def count_in(text: str) -> float:
    counted = COUNTED.search(text)
    return float(counted[1]) if counted else 0.0


def answers_of(url: str) -> float:
    """How many extractions the server's metrics count."""
    return count_in(patient.get(f"{url}/metrics").text)


def until_counted(url: str, count: float) -> str:
    """The metrics that count so many: an answer is counted once it is sent."""

    def counted() -> str:
        text = patient.get(f"{url}/metrics").text
        return text if count_in(text) >= count else ""

    return wait_until(counted)


def test_two_servers_of_a_user_have_metrics_of_their_own(server, observed):
    """They share BENTOML_HOME, where both wrote into one folder, and a start deleted the other's files."""
    before, others = answers_of(observed.url), answers_of(server)
    patient.post(f"{server}/v1/extract", json=BODY).raise_for_status()
    until_counted(server, others + 1)
    assert answers_of(observed.url) == before
    patient.post(f"{observed.url}/v1/extract", json=BODY).raise_for_status()
    text = until_counted(observed.url, before + 1)
    assert 'gliner_items_total{model="general",outcome="completed"}' in text
    of_one_model = [line for line in text.splitlines() if not line.startswith("#") and 'model="pii"' not in line]
    assert len(of_one_model) < 500, "see docs/operations.md"
    assert list(observed.temporary.glob("gliner-bento-*/metrics/*.db"))


def test_the_log_is_json_from_the_first_line_and_has_each_request_once(observed):
    patient.post(f"{observed.url}/v1/extract", json=BODY | {"request_id": "logged"}).raise_for_status()
    # It is written once the answer is sent.
    (line,) = wait_until(lambda: [line for line in observed.lines() if line.get("request_id") == "logged"], every_s=0.1)
    assert (line["logger"], line["status"], line["items"]) == ("gliner_bento.access", 200, 1)
    assert "Gates" not in observed.log.read_text()


def test_a_trace_has_the_spans_of_both_processes(observed):
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    patient.post(f"{observed.url}/v1/extract", json=BODY, headers=headers).raise_for_status()
    wanted = {"POST /v1/extract", "queue", "batch", "collate", "forward", "decode"}
    names = observed.collector.names
    wait_until(lambda: names.get(TRACE) == wanted, every_s=0.1, state=lambda: names)

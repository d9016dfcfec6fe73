"""Which answers count as faults, and that cases follow from their seed."""

from __future__ import annotations

import itertools
import json

import pytest

from gliner_bento.gateway.compat import vllm_factory
from gliner_bento.gateway.openapi import openapi_document
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.v1 import adapters, extract, server
from gliner_bento.settings import Settings
from reliability.fuzz import Answer, OwnErrors, fault_of
from reliability.fuzz_cases import Case, Cases

WHOLE = Case("fields", "POST", b"POST /v1/extract HTTP/1.1\r\n\r\n")
POOLING = Case("fields", "POST", b"POST /pooling?a=1 HTTP/1.1\r\n\r\n")
PART = Case("raw", "POST", b"POST /v1", whole=False)


def error(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "m", "param": None, "request_id": "r"}}).encode()


@pytest.mark.parametrize(
    ("case", "answer", "fault"),
    [
        (WHOLE, Answer(200, b"{}"), None),
        (WHOLE, Answer(422, error("invalid_field")), None),
        (WHOLE, Answer(503, error("not_ready")), None),
        (WHOLE, Answer(500, error("internal")), "server error"),
        (WHOLE, Answer(503, error("internal")), "server error"),
        (WHOLE, Answer(502, b"bad gateway"), "server error"),
        (WHOLE, Answer(400, b"Invalid HTTP request received."), "error body"),
        (WHOLE, Answer(400, b'{"error": "no"}'), "error body"),
        (WHOLE, Answer(200, b"<html>"), "success body"),
        (WHOLE, Answer(0), "no answer"),
        (WHOLE, None, "hung"),
        (POOLING, Answer(400, b'{"error": {"message": "m", "type": "t", "param": null, "code": 400}}'), None),
        (POOLING, Answer(504, b'{"error": {"message": "m", "type": "t", "param": null, "code": 504}}'), None),
        (POOLING, Answer(500, b'{"error": {"message": "m", "type": "t", "param": null, "code": 500}}'), "server error"),
        (POOLING, Answer(400, b'{"error": {"code": 400}}'), "error body"),
        (POOLING, Answer(400, error("malformed_request")), None),
        (PART, Answer(0), None),
        (PART, None, "hung"),
    ],
)
def test_an_answer_is_judged(case: Case, answer: Answer | None, fault: str | None):
    document = json.loads(openapi_document(vllm_factory.endpoints(Settings().view(GatewayOptions))))
    assert fault_of(case, answer, OwnErrors(document)) == fault


def test_cases_of_a_seed_are_the_same_and_reach_every_documented_route():
    endpoints = [*extract.ENDPOINTS, *adapters.ENDPOINTS, *server.ENDPOINTS]
    document = json.loads(openapi_document(endpoints))
    cases, again = (list(itertools.islice(Cases(document, 3), 3000)) for _ in range(2))
    assert cases == again
    lines = b"\n".join(case.data.partition(b"\r\n")[0] for case in cases)
    for path in document["paths"]:
        assert path.partition("{")[0].encode() in lines

"""How the soak compares answers, and fits the memory."""

from __future__ import annotations

import json

import pytest

from reliability.soak import memory_slope
from reliability.soak_requests import SoakRequest, predictions, same, soak_requests

ENTITY = {"start": 0, "end": 3, "label": "person", "score": 0.9}


def answer(**changes: object) -> bytes:
    return json.dumps({"entities": [ENTITY | changes], "relations": []}).encode()


@pytest.mark.parametrize(
    ("changes", "equal"), [({}, True), ({"score": 0.9001}, True), ({"score": 0.91}, False), ({"end": 4}, False)]
)
def test_answers_are_the_same_to_within_a_small_difference_of_scores(changes: dict[str, object], equal: bool):
    request = SoakRequest("short", "/v1/extract", {})
    assert same(predictions(request, answer()), predictions(request, answer(**changes))) is equal
    assert not same(predictions(request, answer()), predictions(request, b'{"entities": [], "relations": []}'))


def test_a_stream_predicts_what_its_lines_say():
    lines = [json.dumps({"entity": ENTITY}), json.dumps({"relations": []})]
    streamed = predictions(SoakRequest("stream", "", {}), "\n".join(lines).encode())
    assert same(streamed, predictions(SoakRequest("short", "", {}), answer()))


def test_the_mixture_has_all_kinds():
    kinds = {request.kind for request in soak_requests(200)}
    assert kinds == {"short", "relations", "mixed", "long", "batch", "stream", "gliner", "adapter"}


def test_the_slope_is_that_of_all_services_after_the_warm_up():
    early = [(float(second), {"gateway": 10.0, "runner": 0.5 * second}) for second in range(60)]
    late = [(60.0 + second, {"gateway": 100.0 + second / 60, "runner": 200.0 + second / 30}) for second in range(300)]
    assert memory_slope(early + late, 60.0) == pytest.approx(3.0)
    assert memory_slope(late[:1], 60.0) is None


def test_memory_of_the_moment_is_no_slope():
    samples = [(float(at_s), {"gateway": 1.0, "runner": 400.0 + at_s * (at_s % 30 > 0)}) for at_s in range(300)]
    assert memory_slope(samples, 0.0) == pytest.approx(0.0)

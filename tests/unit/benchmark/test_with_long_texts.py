"""Answers about long texts that do not count, and memory that is watched."""

from __future__ import annotations

import json
import os

import pytest

from gliner_bento.benchmark.bench import QUICK, Bench
from gliner_bento.benchmark.job import NotMeasured
from gliner_bento.benchmark.load import Reply, Run
from gliner_bento.benchmark.server import Server, weighed
from gliner_bento.benchmark.with_long_texts import checked

BODIES = [{"text": "Ada in London.", "labels": ["person"]}, {"text": "Bob.", "labels": ["person"]}]
ADA = {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}


def reply(body: int, entities: list, words: int, status: str = "200") -> Reply:
    return Reply(body, status, json.dumps({"entities": entities, "usage": {"words": words}}).encode(), 0.1)


def test_answers_are_told_by_body():
    run = Run([reply(1, [], 2), reply(0, [ADA], 4)])
    assert [answer["entities"] for answer in checked(run, BODIES)] == [[ADA], []]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (reply(0, [], 4, "503"), "ours answered 503"),
        (reply(0, [ADA | {"start": 1}], 4), "1 answers do not fit"),
        (reply(0, [ADA], 3), "ours read 3 of 4 words"),
    ],
)
def test_an_answer_that_is_not_of_the_whole_text_is_no_measurement(wrong, why):
    with pytest.raises(NotMeasured, match=why):
        checked(Run([reply(1, [], 2), wrong]), BODIES)


def test_memory_is_weighed_before_and_after():
    with weighed(Server("", os.getpid())) as sizes:
        assert len(sizes) == 1
        held = bytearray(os.urandom(1 << 20) * 64)
    assert len(sizes) == 2
    assert sizes[1] - sizes[0] > len(held) / 2


def test_a_load_that_nobody_answers_is_kept_and_no_measurement(tmp_path):
    bench = Bench(QUICK, tmp_path, tmp_path)
    with pytest.raises(NotMeasured, match=r"ours answered \{'503': 1\}"):
        bench.kept("ours", Run([reply(0, [], 4, "503")], seconds=1.0), concurrency=1)
    assert bench.points[0]["statuses"] == {"503": 1}

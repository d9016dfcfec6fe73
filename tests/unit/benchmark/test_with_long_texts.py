"""Answers for long texts that are refused, and samples of memory."""

from __future__ import annotations

import json
import mmap
import os

import pytest

from benchmark.bench import QUICK, Bench
from benchmark.job import NotMeasured
from benchmark.server import Server, memory_samples
from benchmark.with_long_texts import checked_answers
from gliner_bento.loadtest.load import Run, TimedResponse

BODIES = [{"text": "Ada in London.", "labels": ["person"]}, {"text": "Bob.", "labels": ["person"]}]
ADA = {"start": 0, "end": 3, "text": "Ada", "label": "person", "score": 0.9}


def reply(body: int, entities: list, words: int, status: str = "200") -> TimedResponse:
    return TimedResponse(body, status, json.dumps({"entities": entities, "usage": {"words": words}}).encode(), 0.1)


def test_answers_are_sorted_by_body():
    run = Run([reply(1, [], 2), reply(0, [ADA], 4)])
    assert [answer["entities"] for answer in checked_answers(run, BODIES)] == [[ADA], []]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (reply(0, [], 4, "503"), "ours answered 503"),
        (reply(0, [ADA | {"start": 1}], 4), "1 answers have offsets that do not match"),
        (reply(0, [ADA], 3), "ours processed 3 of 4 words"),
    ],
)
def test_a_failed_or_incomplete_answer_is_not_measured(wrong, why):
    with pytest.raises(NotMeasured, match=why):
        checked_answers(Run([reply(1, [], 2), wrong]), BODIES)


def test_memory_is_sampled_on_entry_and_exit():
    with memory_samples(Server("", os.getpid())) as sizes:
        assert sizes
        held = mmap.mmap(-1, 64 << 20)  # not memory that earlier tests have freed
        held.write(os.urandom(1 << 20) * 64)
    assert len(sizes) >= 2
    assert sizes[-1] - sizes[0] > len(held) / 2


def test_a_load_without_a_successful_response_is_kept_and_not_measured(tmp_path):
    bench = Bench(QUICK, tmp_path, tmp_path)
    with pytest.raises(NotMeasured, match=r"ours answered \{'503': 1\}"):
        bench.keep_point("ours", Run([reply(0, [], 4, "503")], seconds=1.0), concurrency=1)
    assert bench.points[0]["statuses"] == {"503": 1}

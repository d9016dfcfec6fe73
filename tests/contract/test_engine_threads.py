"""Several lanes and tokenizer threads use one engine concurrently."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from comparison import assert_same, extract_batch, extract_one, random_item

pytestmark = pytest.mark.usefixtures("restless")


@pytest.mark.parametrize("family", ["span", "bi-token", "relex-span", "relex-token", "decoder-span"])
def test_results_are_the_same_from_several_threads(family: str, engine: Any) -> None:
    served = engine(family, seed=1)
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(12)]
    expected = [extract_one(served, item) for item in items]
    barrier = threading.Barrier(3)

    def lane(number: int) -> None:
        served.start_lane()
        barrier.wait(30)
        for turn in range(12):
            some = [(number + turn + i) % len(items) for i in range(4)]
            for i, answer in zip(some, extract_batch(served, [items[i] for i in some]), strict=True):
                assert_same(answer, expected[i])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(lane, number) for number in range(3)]:
            done.result(120)


def test_a_lane_uses_its_number_of_threads(engine: Any) -> None:
    served, barrier = engine("span", seed=1), threading.Barrier(2)
    batch = [served.prepare(random_item(0, relations=False))]

    def lane(threads: int) -> int:
        served.start_lane()
        served.forward(served.collate(batch), 3)
        served.forward(served.collate(batch), threads)
        barrier.wait(30)
        return torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lane, [1, 2])) == [1, 2]

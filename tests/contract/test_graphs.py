"""CUDA graphs: what is captured for one batch gives the results of every other batch of its bucket.

On a CPU the capture is a double that runs the pass again on another tensor, without what a graph would not see.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from checkpoints import LABELS, TEXTS, load_engine, named
from comparison import assert_same, extract_batch

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.forward import agree
from gliner_bento.engine.graphs import Graphs, Run
from gliner_bento.tasks.extraction import ExtractionItem as Item

CAPTURED = ["span", "token", "token-spans", "relex-span", "relex-token"]
WORDS = f"{TEXTS[4]} {TEXTS[1]}".split()


class Rerun:
    """A capture without a device. left: how many more graphs there is memory for. wrong: replays read other tokens."""

    def __init__(self, left: int = 1000) -> None:
        self.left = left
        self.replayed = 0
        self.wrong = False

    def __call__(self, run: Run[Any], data: torch.Tensor) -> Callable[[torch.Tensor], Any]:
        static = data.clone()
        run(static)
        self.left -= 1

        def replay(data: torch.Tensor) -> Any:
            self.replayed += 1
            static.copy_(data)
            if self.wrong:
                static[:3] = 0  # tokens
            return run(static)

        return replay

    def has_memory(self) -> bool:
        return self.left > 0


def with_graphs(served: GLiNEREngine, capture: Rerun, most: int = 100) -> Graphs[Any]:
    """Give a padded engine on a CPU the double."""
    served._forward._graphs = graphs = Graphs(capture, agree, most)  # type: ignore[union-attr]
    return graphs


def items(served: GLiNEREngine, lengths: list[int]) -> list[Item]:
    relations = named(["works for", "based in"]) if served.info.supports_relations else {}
    return [
        Item(" ".join(WORDS[at : at + length]), named(LABELS[: 2 + at % 3]), relations, threshold=0.4 + at / 50)
        for at, length in enumerate(lengths)
    ]


def rotations(served: GLiNEREngine) -> list[list[Item]]:
    """Batches of one bucket, in each of which the texts have other lengths."""
    texts = items(served, [9, 4, 12, 7])
    return [texts[at:] + texts[:at] for at in range(4)]


@pytest.mark.parametrize("family", CAPTURED)
@pytest.mark.parametrize("backbone", ["bert", "deberta", "modernbert"])
def test_a_graph_gives_the_results_of_every_batch_of_its_bucket(family: str, backbone: str, checkpoint: Any) -> None:
    served = load_engine(checkpoint(family, backbone=backbone, seed=4), padded=True)
    batches = rotations(served)
    expected = [extract_batch(served, batch) for batch in batches]
    capture = Rerun()
    graphs = with_graphs(served, capture)
    buckets = {served.collate([served.prepare(item) for item in batch]).inputs.bucket for batch in batches}
    assert len(buckets) == 1
    for batch, answers in zip(batches, expected, strict=True):
        for answer, wanted in zip(extract_batch(served, batch), answers, strict=True):
            assert_same(answer, wanted)
    assert (graphs.captured, capture.replayed) == (1, 4), "the first replay is compared with the pass itself"


def test_a_pass_that_reads_more_of_a_batch_than_its_tensor_is_not_captured(
    checkpoint: Any, caplog: pytest.LogCaptureFixture
) -> None:
    served = load_engine(checkpoint("span", span_mode="conv_max", seed=1), padded=True)
    capture = Rerun()
    graphs = with_graphs(served, capture)
    expected = None
    for _ in range(4):
        answers = extract_batch(served, items(served, [9, 8]))
        expected = expected or answers
        assert answers == expected
    assert (graphs.captured, capture.replayed) == (0, 0)
    assert "cannot be captured" in caplog.text


def test_a_graph_that_gives_other_results_is_not_used(checkpoint: Any, caplog: pytest.LogCaptureFixture) -> None:
    served = load_engine(checkpoint("span", backbone="bert", seed=1), padded=True)
    expected = extract_batch(served, items(served, [9, 8]))
    capture = Rerun()
    capture.wrong = True
    graphs = with_graphs(served, capture)
    for _ in range(3):
        assert extract_batch(served, items(served, [9, 8])) == expected
    assert (graphs.captured, capture.replayed) == (0, 1)
    assert "its replay gives other results" in caplog.text


def test_the_least_recently_used_graph_is_evicted(checkpoint: Any) -> None:
    served = load_engine(checkpoint("span", backbone="bert", seed=1), padded=True)
    capture = Rerun(left=3)
    graphs = with_graphs(served, capture, most=2)
    for length in (5, 20, 40):
        for _ in range(2):
            extract_batch(served, items(served, [length]))
    assert (graphs.captured, capture.left) == (2, 0)


def test_without_memory_for_another_graph_those_that_there_are_stay(checkpoint: Any) -> None:
    served = load_engine(checkpoint("span", backbone="bert", seed=1), padded=True)
    capture = Rerun(left=1)
    graphs = with_graphs(served, capture, most=2)
    for length in (5, 5, 20, 20, 40, 40):
        extract_batch(served, items(served, [length]))
    assert (graphs.captured, capture.replayed) == (1, 2)
    extract_batch(served, items(served, [5]))
    assert (graphs.captured, capture.replayed) == (1, 3), "other buckets evict nothing"


def test_separate_labels_are_not_captured(checkpoint: Any) -> None:
    served = load_engine(checkpoint("bi-span", backbone="bert", seed=1), padded=True)
    graphs = with_graphs(served, Rerun())
    for _ in range(3):
        extract_batch(served, items(served, [5]))
    assert graphs.captured == 0


@pytest.mark.gpu
@pytest.mark.parametrize("family", CAPTURED)
def test_replayed_on_a_gpu(family: str, checkpoint: Any) -> None:
    served = load_engine(checkpoint(family, backbone="deberta", seed=4), device="cuda")
    eager = load_engine(checkpoint(family, backbone="deberta", seed=4), device="cuda", enforce_eager=True)
    for batch in rotations(served):
        for answer, wanted in zip(extract_batch(served, batch), extract_batch(eager, batch), strict=True):
            assert_same(answer, wanted)
    assert served._forward._graphs.captured == 1  # type: ignore[union-attr]
    assert "CUDA graphs" in served.info.forward
    assert "CUDA graphs" not in eager.info.forward


@pytest.mark.gpu
def test_two_lanes_capture_on_a_gpu(checkpoint: Any) -> None:
    served = load_engine(checkpoint("span", backbone="deberta", seed=4), device="cuda")
    batches = [items(served, [length] * texts) for texts in (1, 2, 3, 4) for length in (5, 20, 40)]
    together = Barrier(2)

    def answers_of(batch: list[Item]) -> list[Any]:
        first = extract_batch(served, batch)
        together.wait()  # both lanes capture the second batch
        return [first, extract_batch(served, batch), extract_batch(served, batch)]

    def lane() -> list[Any]:
        served.start_lane()
        return [answers_of(batch) for batch in batches]

    with ThreadPoolExecutor(2) as lanes:
        answers = [future.result() for future in [lanes.submit(lane) for _ in range(2)]]
    assert served._forward._graphs.captured == 2 * len(batches)  # type: ignore[union-attr]
    for one, other in zip(*answers, strict=True):
        for batch in (*one, *other):
            for answer, wanted in zip(batch, one[0], strict=True):
                assert_same(answer, wanted)

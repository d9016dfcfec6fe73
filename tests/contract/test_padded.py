"""The padded layout of a GPU: how much it launches, and that nothing waits for the device. Results: `test_engine_*`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from checkpoints import BACKBONES, LABELS, RELATIONS, TEXTS, load_engine, named
from comparison import assert_same, extract_batch, gliner_extraction, random_item
from torch.utils._python_dispatch import TorchDispatchMode

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.layers.buckets import Bucket, bucketed
from gliner_bento.tasks.extraction import ExtractionItem as Item

MOST_OPERATORS = 250  # of a span model with six layers


class Operators(TorchDispatchMode):
    """Counts what is dispatched, but for views: on a GPU each is a launch or more."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns):
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def some_items(served: GLiNEREngine, number: int) -> list[Item]:
    """Of different lengths and numbers of labels, with few entities."""
    words = f"{TEXTS[4]} {TEXTS[1]}".split()
    relations = named(RELATIONS[:2]) if served.info.supports_relations else {}
    return [
        Item(" ".join(words[: 5 + 7 * text % 31]), named(LABELS[: 3 + text % 3]), relations, threshold=0.95)
        for text in range(number)
    ]


def operators(served: GLiNEREngine, texts: int) -> Counter[str]:
    """Of a batch's forward pass."""
    batch = served.collate([served.prepare(item) for item in some_items(served, texts)])
    with Operators() as dispatched:
        served.forward(batch, 1)
    return dispatched.counts


def test_a_span_model_launches_little_for_any_number_of_texts(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKBONES, "deberta-6", {**BACKBONES["deberta"], "num_hidden_layers": 6})
    served = load_engine(checkpoint("span", backbone="deberta-6", seed=2), padded=True)
    few, many = operators(served, 8), operators(served, 64)
    assert many.total() <= MOST_OPERATORS, many.most_common(20)
    assert many.total() == pytest.approx(few.total(), rel=0.1), many - few


@pytest.mark.parametrize(("size", "expected"), [(0, 1), (1, 1), (16, 16), (17, 18), (33, 36), (64, 64), (65, 72)])
def test_sizes_of_buckets(size: int, expected: int) -> None:
    assert bucketed(size, 1, 8) == expected


def test_a_bucket_wastes_little() -> None:
    assert all(bucketed(size, 1, 8) < 1.125 * size + 1 for size in range(1, 5000))
    assert Bucket.of(1, 70, 70, 51, 3, 0) == (1, 80, 80, 56, 8, 0)
    assert Bucket.of(60, 3000, 70, 51, 3, 9) == (64, 3840, 80, 56, 8, 16)


def test_attention_is_never_cudnns(checkpoint: Any) -> None:
    """It builds a plan for every new shape."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_engine(checkpoint("token", backbone="bert", seed=1))
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled()


@pytest.mark.gpu
@pytest.mark.parametrize("backbone", ["bert", "deberta", "modernbert"])
@pytest.mark.parametrize("family", ["span", "token", "bi-span", "relex-span"])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits_for_the_device_before_decoding(family: str, backbone: str, checkpoint: Any) -> None:
    served = load_engine(checkpoint(family, backbone=backbone, seed=3), device="cuda")
    batch = served.collate([served.prepare(item) for item in some_items(served, 8)])
    served.forward(batch, 1)  # a bi-encoder's labels are encoded once
    with torch.inference_mode():
        torch.cuda.set_sync_debug_mode("error")
        try:
            served._forward.scores(batch.inputs)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["span", "token", "token-spans", "bi-span", "bi-token", "relex-span", "relex-token"])
def test_results_on_a_gpu_are_gliners(family: str, checkpoint: Any, reference: Any) -> None:
    served = load_engine(checkpoint(family, backbone="bert", seed=1), device="cuda")
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(16)]
    for item, answer in zip(items, extract_batch(served, items), strict=True):
        assert_same(answer, gliner_extraction(reference(family, backbone="bert", seed=1), item))


@pytest.mark.gpu
def test_attention_on_a_gpu_launches_no_kernel_of_cudnn(checkpoint: Any) -> None:
    served = load_engine(checkpoint("span", backbone="deberta", seed=2), device="cuda")
    batch = served.collate([served.prepare(item) for item in some_items(served, 8)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        served.forward(batch, 1)
    names = [event.key for event in profile.key_averages()]
    assert names
    assert not [name for name in names if "cudnn" in name and ("sdp" in name or "flash" in name)]

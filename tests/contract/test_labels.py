"""A bi-encoder's labels are encoded once and cached, and the cache changes no result."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from comparison import assert_same, extract_batch, extract_one, random_item
from views import view

from gliner_bento.engine.encoders.label_encoder import LabelEncoder, LabelIds
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.options import EngineOptions

LABELS: list[LabelIds] = [(2, *range(5, 6 + number), 3) for number in range(12)]
A, B, C, D = LABELS[:4]


pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(params=["bert", "electra", "convbert"])
def layer(request: Any, reference: Any) -> Any:
    """gliner's `BiEncoder`, over backbones with a packed form, without one, and one that padding changes."""
    return reference("bi-span", backbone=request.param, seed=1).model.token_rep_layer


def encoder(layer: Any, size: int) -> LabelEncoder:
    return LabelEncoder(layer, size, LayerFactory(layer), pack=True)


def of_one_row(labels: Sequence[LabelIds]) -> TextRows:
    return TextRows((len(labels),))


def exact(layer: Any, labels: Sequence[LabelIds]) -> torch.Tensor:
    """gliner's embeddings, of one label at a time."""
    rows = [torch.tensor(label)[None] for label in labels]
    return torch.cat([layer.encode_labels(row, torch.ones_like(row)) for row in rows])


def assert_embeds(encode: LabelEncoder, layer: Any, labels: Sequence[LabelIds]) -> None:
    torch.testing.assert_close(encode(labels, of_one_row(labels)), exact(layer, labels), atol=1e-4, rtol=0)


def test_embeds_labels_as_gliner_does(layer: Any) -> None:
    assert_embeds(encoder(layer, 100), layer, [C, A, LABELS[11], A, B])


def test_encodes_each_label_once(layer: Any) -> None:
    encode = encoder(layer, 100)
    encode([A, B, A, A], of_one_row([A, B, A, A]))
    assert encode.encoded_labels == 2
    assert_embeds(encode, layer, [B, A])
    assert encode.encoded_labels == 2
    assert_embeds(encode, layer, [D, B, C, A, D])
    assert encode.encoded_labels == 4


def test_the_least_recently_used_is_evicted(layer: Any) -> None:
    encode = encoder(layer, 2)
    encode([A, B], of_one_row([A, B]))
    encode([A], of_one_row([A]))
    assert_embeds(encode, layer, [C])  # evicts B
    assert_embeds(encode, layer, [A, C])
    assert encode.encoded_labels == 3
    assert_embeds(encode, layer, [B])  # evicts A
    assert_embeds(encode, layer, [C, B])
    assert encode.encoded_labels == 4
    assert_embeds(encode, layer, [A])
    assert encode.encoded_labels == 5


def test_a_cache_of_size_0_holds_nothing(layer: Any) -> None:
    encode = encoder(layer, 0)
    for turn in range(1, 3):
        assert_embeds(encode, layer, [A, B, A])
        assert encode.encoded_labels == 2 * turn


def test_a_batch_may_have_more_labels_than_the_cache_holds(layer: Any) -> None:
    encode = encoder(layer, 2)
    encode([A], of_one_row([A]))
    assert_embeds(encode, layer, [A, *LABELS[3:9], A])
    assert_embeds(encode, layer, LABELS)
    before = encode.encoded_labels
    assert_embeds(encode, layer, LABELS[-2:])
    assert encode.encoded_labels == before


def test_many_labels_are_encoded_in_batches(layer: Any) -> None:
    draw = random.Random(0)
    labels = list({tuple(draw.choices(range(5, 60), k=draw.randint(3, 40))) for _ in range(400)})
    assert sum(map(len, labels)) > 4096
    assert_embeds(encoder(layer, 1000), layer, labels)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("size", [0, 3, 100])
def test_lanes_share_the_cache(size: int, layer: Any) -> None:
    encode, expected = encoder(layer, size), dict(zip(LABELS, exact(layer, LABELS), strict=True))

    def lane(seed: int) -> None:
        draw = random.Random(seed)
        with torch.inference_mode():
            for _ in range(40):
                labels = draw.choices(LABELS, k=draw.randint(1, 8))
                embeddings = torch.stack([expected[label] for label in labels])
                torch.testing.assert_close(encode(labels, of_one_row(labels)), embeddings, atol=1e-4, rtol=0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lane, range(4)))


@pytest.mark.parametrize("family", ["bi-span", "bi-token"])
def test_results_do_not_depend_on_the_cache(family: str, reference: Any) -> None:
    model = reference(family, backbone="bert", seed=1)
    plenty, none, one = (GLiNEREngine(model, "m", view(EngineOptions, label_cache_size=size)) for size in (4096, 0, 1))
    items = [random_item(seed, relations=False) for seed in range(12)]
    first = [extract_one(plenty, item) for item in items]
    for answers in (
        [extract_one(plenty, item) for item in items],
        extract_batch(none, items),
        extract_batch(one, items),
    ):
        for answer, expected in zip(answers, first, strict=True):
            assert_same(answer, expected)
    assert len(list(chain.from_iterable(answer.entities for answer in first))) > 10


def test_a_second_request_with_the_same_labels_encodes_none(reference: Any) -> None:
    model = reference("bi-span", backbone="electra", seed=1)
    encoded: list[int] = []
    watch = model.model.token_rep_layer.labels_encoder.register_forward_hook(lambda *call: encoded.append(1))
    engine, item = GLiNEREngine(model, "m", view(EngineOptions)), random_item(0, relations=False)
    extract_one(engine, item)
    assert encoded
    encoded.clear()
    extract_one(engine, replace(item, text="Bill Gates lives in Paris.", threshold=0.1))
    watch.remove()
    assert not encoded

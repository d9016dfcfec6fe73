"""The engine's own tokenizing and collating make the tensors that gliner's make."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from asking import some_item

from gliner_bento.engine.base import Item

CASES: list[tuple[str, dict[str, Any]]] = [
    ("span", {}),
    ("span", {"subtoken_pooling": "last"}),
    ("span", {"subtoken_pooling": "mean"}),
    ("token", {}),
    ("bi-span", {}),
    ("bi-token", {}),
    ("relex-span", {}),
    ("relex-token", {}),
    ("decoder-span", {}),
]


@pytest.mark.parametrize(("family", "options"), CASES)
def test_same_tensors_as_gliner(family: str, options: dict[str, Any], engine: Any, reference: Any) -> None:
    served, gliner = engine(family, seed=1, **options), reference(family, seed=1, **options)
    items = [some_item(seed, relations=served.info.supports_relations) for seed in range(12)]
    ours = served.collate([served.prepare(item) for item in items]).inputs
    theirs = gliners_batch(gliner, items)
    names = ("input_ids", "attention_mask", "words_mask", "text_lengths", "word_lengths", "span_idx", "span_mask")
    labels = ("labels_input_ids", "labels_attention_mask", "labels_gather_indices", "prompts_embedding_mask")
    compared = [name for name in (*names, *labels) if name in theirs]
    assert set(compared) == set(ours)
    for tensors in (ours, theirs):  # models read spans under their mask only
        if "span_idx" in tensors:
            tensors["span_idx"] = tensors["span_idx"] * tensors["span_mask"][..., None]
    for name in compared:
        theirs_now, ours_now = torch.as_tensor(theirs[name]), torch.as_tensor(ours[name])
        assert torch.equal(ours_now, theirs_now.to(ours_now.dtype)), name


def gliners_batch(model: Any, items: list[Item]) -> dict[str, Any]:
    """What gliner collates for `items`."""
    labels = [dict(item.labels) for item in items]
    more: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(model, "predict_relations"):
            relations = [list(item.relations.values()) for item in items]
            prepared = model.prepare_batch([item.text for item in items], labels, relations=relations)
            more["relation_types"] = prepared["relation_types"]
        else:
            prepared = model.prepare_batch([item.text for item in items], labels)
        batch: dict[str, Any] = model.collate_batch(prepared["input_x"], prepared["entity_types"], **more)
    return batch

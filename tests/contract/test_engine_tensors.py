"""The engine's tokenizer and collators make gliner's tensors, padded and packed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from comparison import random_item

from gliner_bento.engine.families import Family, family_of
from gliner_bento.engine.text.collate import PaddedCollator
from gliner_bento.tasks.extraction import ExtractionItem as Item

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
def test_padded_tensors_are_gliners(family: str, options: dict[str, Any], engine: Any, reference: Any) -> None:
    served, gliner = engine(family, seed=1, **options), reference(family, seed=1, **options)
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(12)]
    ours = collator_of(gliner)([served.prepare(item) for item in items]).inputs
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


@pytest.mark.parametrize(("family", "options"), CASES)
def test_packed_tensors_are_gliners_without_padding(
    family: str, options: dict[str, Any], engine: Any, reference: Any
) -> None:
    served, gliner = engine(family, seed=1, **options), reference(family, seed=1, **options)
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(12)]
    batch = served.collate([served.prepare(item) for item in items])
    theirs = gliners_batch(gliner, [row.item for row in batch.texts])
    ours, mask = batch.inputs, theirs["attention_mask"].bool()
    tokens, words, label_rows, _ = ours.rows
    assert sorted(tokens.counts) == list(tokens.counts) == mask.sum(1).tolist()
    assert torch.equal(ours.token_ids, theirs["input_ids"][mask])
    marks = theirs["words_mask"][mask]
    assert torch.equal(ours.word_positions, marks.nonzero()[:, 0])
    before = torch.tensor([sum(words.counts[:i]) for i, n in enumerate(tokens.counts) for _ in range(n)])
    assert torch.equal(ours.word_numbers, (marks + before - 1)[marks > 0])
    assert list(words.counts) == theirs["text_lengths"].flatten().tolist()
    assert [len(row.item.labels) for row in batch.texts] == list(label_rows.counts)
    if "labels_input_ids" in theirs:
        labels, padding = theirs["labels_input_ids"], theirs["labels_attention_mask"]
        lists = [places[:n] for places, n in zip(theirs["labels_gather_indices"], label_rows.counts, strict=True)]
        assert [list(ids) for ids in ours.label_ids] == [
            labels[place][padding[place].bool()].tolist() for place in torch.cat(lists)
        ]


def collator_of(gliner: Any) -> PaddedCollator:
    family = family_of(gliner, "reference")
    assert isinstance(family, Family)
    return family.collator(gliner)


def gliners_batch(model: Any, items: list[Item]) -> dict[str, Any]:
    """gliner's tensors for `items`."""
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

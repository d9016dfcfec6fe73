"""The self-check of batch invariance at start: results have the same bits in one batch and text by text, with each
number of threads.

`layers.heights` and the shapes of the forward pass are designed for this, but it also depends on the kernels that the
libraries have for this processor. Uses engines only through their contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gliner_bento.engine.base import Engine
from gliner_bento.engine.self_test import unfiltered_item
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.extraction import ExtractionItem as Item

_WORDS = "Ada Lovelace of London met Zoë near the Café-au-Lait in Paris ; nobody saw 42 people , not even Microsoft ."
_LABELS = ("human being", "town", "business")
# Number of words of each text. The token counts are below, near and above low heights (see `layers.heights`).
_LENGTHS = (1, 5, 5, 14, 30, 61)
# Longer texts get no relations, because with thresholds of 0, a result has relations between all pairs of spans.
_MAX_RELATED_WORDS = 5


def thread_counts(lanes: int, torch_threads: int) -> tuple[int, ...]:
    """The numbers of threads that a batch may run with: 1 in the express lane; else those of its lane plus those of 0,
    1, ... idle lanes."""
    return tuple(sorted({1, *(torch_threads * (1 + idle) for idle in range(lanes))}))


def is_batch_invariant(engine: Engine, threads: Sequence[int]) -> bool:
    """Whether short texts have the same results in one batch and text by text, with each of these numbers of threads.

    False for an error, such as scores that are not numbers.
    """
    items = list(_items(engine.info))
    try:
        expected = _text_by_text(engine, items, threads[0])
        same_alone = all(_text_by_text(engine, items, count) == expected for count in threads[1:])
        return same_alone and all(_results(engine, items[::-1], count) == expected[::-1] for count in threads)
    except GLiNERBentoError:
        return False


def _text_by_text(engine: Engine, items: Sequence[Item], threads: int) -> list[Any]:
    return [result for item in items for result in _results(engine, [item], threads)]


def _results(engine: Engine, items: Sequence[Item], threads: int) -> list[Any]:
    """The results of one batch. Items run as passes, whose results have the suppressed entities too."""
    prepared = [replace(engine.prepare(item), is_pass=True) for item in items]
    results = engine.decode(engine.forward(engine.collate(prepared), threads))
    return [(list(result.entities), list(result.suppressed), result.relations, result.parts) for result in results]


def _items(info: ModelInfo) -> Iterator[Item]:
    vocabulary = _WORDS.split()
    labels = _LABELS[: info.max_labels_per_pass]
    for index, length in enumerate(_LENGTHS):
        has_relations = info.supports_relations and length <= _MAX_RELATED_WORDS
        words = [vocabulary[(index + offset) % len(vocabulary)] for offset in range(min(length, info.max_words))]
        relations = ("knows",) if has_relations else ()
        yield unfiltered_item(info, " ".join(words), labels[index % len(labels) :], relations)

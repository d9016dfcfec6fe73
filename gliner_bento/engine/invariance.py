"""The self-check of batch invariance at start: the same bits in one batch and one by one, with any number of threads.

It shows whether a promise is kept on this machine, that `layers.heights` and the shapes of the forward pass make: which
kernels run depends on the processor and on the versions of the libraries. Knows engines, not how one computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gliner_bento.engine.base import Engine
from gliner_bento.engine.self_test import all_scores
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.extraction import ExtractionItem as Item

_WORDS = "Ada Lovelace of London met Zoë near the Café-au-Lait in Paris ; nobody saw 42 people , not even Microsoft ."
_LABELS = ("human being", "town", "business")
# Words of the texts: shapes below, at and above the limits of blocks, and two of one length.
_LENGTHS = (1, 5, 5, 14, 30, 61)
# Relations only between few spans: all thresholds are 0.
_RELATED_WORDS = 5


def thread_counts(lanes: int, torch_threads: int) -> tuple[int, ...]:
    """The numbers of threads that a batch may run with: those of one lane, and of the idle lanes that it uses."""
    return tuple(torch_threads * (1 + shared) for shared in range(lanes))


def is_batch_invariant(engine: Engine, threads: Sequence[int]) -> bool:
    """Whether short texts have the same results in one batch and one by one, with each of these numbers of threads.

    False if they have none, because the scores are not numbers.
    """
    with suppress(GLiNERBentoError):
        return _results_are_equal(engine, threads)
    return False


def _results_are_equal(engine: Engine, threads: Sequence[int]) -> bool:
    items = list(_items(engine.info))
    expected: Sequence[Any] | None = None
    for count in threads:
        alone = [result for item in items for result in _results(engine, [item], count)]
        if (expected or alone) != alone or _results(engine, items[::-1], count) != alone[::-1]:
            return False
        expected = alone
    return True


def _results(engine: Engine, items: Sequence[Item], threads: int) -> Sequence[Any]:
    """The results of one batch. Items run as passes, whose results have the suppressed entities too."""
    prepared = [replace(engine.prepare(item), is_pass=True) for item in items]
    passes = engine.decode(engine.forward(engine.collate(prepared), threads))
    return [(list(one.entities), list(one.suppressed), one.relations, one.classes) for one in passes]


def _items(info: ModelInfo) -> Iterator[Item]:
    vocabulary = _WORDS.split()
    labels = _LABELS[: info.max_labels_per_pass]
    for number, length in enumerate(_LENGTHS):
        related = info.supports_relations and length <= _RELATED_WORDS
        words = [vocabulary[(number + at) % len(vocabulary)] for at in range(min(length, info.max_words))]
        yield all_scores(info, " ".join(words), labels[number % len(labels) :], ("knows",) if related else ())

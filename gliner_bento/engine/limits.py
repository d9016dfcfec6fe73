"""How many entities and relations an answer may have, and which are kept if there are more (`on_limit`).

Memory and time of everything behind the scores follow from these numbers. Knows no model and no spans.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gliner_bento.errors import LimitExceeded
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.extraction import ExtractionItem as Item

MAX_CANDIDATES = 200_000
"""Spans above the threshold before overlap resolution, in one pass, or that wait for the next window of a text."""

CHARS_PER_RESULT = 200
"""Mean length of an entity's text in the largest answer; a relation repeats those of its two entities."""

_THRESHOLD_OF = {"max_entities": "threshold", "max_relations": "relation_threshold"}


def too_many_candidates(number: int, limit: int = MAX_CANDIDATES) -> LimitExceeded:
    """The error for a threshold that is too low. Independent of `on_limit`."""
    return LimitExceeded(f"threshold: too low: {number} spans are above it, the limit is {limit}", param="threshold")


def too_many(item: Item, limit: str) -> LimitExceeded:
    """The error of an item with more results than `limit`, `max_entities` or `max_relations`."""
    param, what = _THRESHOLD_OF[limit], limit.removeprefix("max_")
    return LimitExceeded(
        f"{param}: too many or too long {what} above it: the limit is {getattr(item, limit)} ({limit}, divided among "
        f"the texts of a batch), of {CHARS_PER_RESULT} characters on average; raise it, or set on_limit to truncate",
        param=param,
    )


def kept_of(item: Item, limit: str, scores: NDArray[np.float64], chars: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """Indices of the results that fit `limit`, in order; None if all do.

    limit: `max_entities` or `max_relations`. scores, chars: of each result; chars: of the texts that it repeats.
    Raises LimitExceeded instead of dropping any, unless `on_limit` is `truncate`. Of equal scores, the first is kept.
    """
    maximum: int = getattr(item, limit)
    if len(scores) <= maximum and int(chars.sum()) <= maximum * CHARS_PER_RESULT:
        return None
    if item.on_limit == "error":
        raise too_many(item, limit)
    best = np.arange(len(scores))
    if 0 < maximum < len(scores):  # only what can be among the best is sorted
        best = np.flatnonzero(scores >= np.partition(scores, -maximum)[-maximum])
    best = best[np.argsort(-scores[best], kind="stable")[:maximum]]
    fitting = np.searchsorted(np.cumsum(chars[best]), maximum * CHARS_PER_RESULT, side="right")
    return np.sort(best[:fitting])


def warning_of(limit: str) -> ExtractionWarning:
    """The warning in an answer from which results were dropped."""
    what = limit.removeprefix("max_")
    return ExtractionWarning(limit, f"there are more {what} than may be returned; the best by score are returned")

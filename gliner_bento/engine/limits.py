"""How many entities and relations an answer may have, and which are kept if there are more (`on_limit`).

These limits bound the memory and time of all steps after scoring. Knows no model and no spans.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gliner_bento.errors import LimitExceeded
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.extraction import ExtractionItem as Item

MAX_CANDIDATES = 200_000
"""Maximum number of spans above the threshold in a pass, in all passes of a window, or kept until the next window."""

CHARS_PER_RESULT = 200
"""All entities' texts together may have `max_entities` times this many characters. All relations' heads and tails may
have `max_relations` times this many."""

_THRESHOLD_OF = {"max_entities": "threshold", "max_relations": "relation_threshold"}


def too_many_candidates(number: int, limit: int = MAX_CANDIDATES) -> LimitExceeded:
    """The error for a threshold that is too low. Raised whatever `on_limit` is."""
    return LimitExceeded(f"threshold: too low: {number} spans are above it, the limit is {limit}", param="threshold")


def too_many(item: Item, limit: str) -> LimitExceeded:
    """The error for an item with more results than `limit` allows. limit: "max_entities" or "max_relations"."""
    param, what = _THRESHOLD_OF[limit], limit.removeprefix("max_")
    return LimitExceeded(
        f"{param}: the {what} above it are too many or too long: the limit is {getattr(item, limit)} ({limit}, divided "
        f"among a batch's texts), with {CHARS_PER_RESULT} characters on average; raise {param}, or set on_limit to "
        "truncate",
        param=param,
    )


def kept_of(item: Item, limit: str, scores: NDArray[np.float64], chars: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """Indices of the results that fit `limit`, in order; None if all do.

    limit: "max_entities" or "max_relations". scores, chars: for each result, its score and the length of its texts.
    Raises LimitExceeded instead of dropping any, unless `on_limit` is `truncate`. Of equal scores, the first is kept.
    """
    maximum: int = getattr(item, limit)
    if len(scores) <= maximum and int(chars.sum()) <= maximum * CHARS_PER_RESULT:
        return None
    if item.on_limit == "error":
        raise too_many(item, limit)
    best = np.arange(len(scores))
    if 0 < maximum < len(scores):  # to sort only the scores that can be among the best
        best = np.flatnonzero(scores >= np.partition(scores, -maximum)[-maximum])
    best = best[np.argsort(-scores[best], kind="stable")[:maximum]]
    fitting = np.searchsorted(np.cumsum(chars[best]), maximum * CHARS_PER_RESULT, side="right")
    return np.sort(best[:fitting])


def warning_of(limit: str) -> ExtractionWarning:
    """The warning in an answer from which results were dropped."""
    what = limit.removeprefix("max_")
    return ExtractionWarning(limit, f"there are more {what} than may be returned; the best by score are returned")

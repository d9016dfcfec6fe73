"""The personal data in a text, by default: what the model and the recognizers found and can be some, and what the text
announces."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gliner_bento.privacy.announced_names import announced_names
from gliner_bento.privacy.announced_numbers import announced_numbers
from gliner_bento.privacy.announced_places import announced_places
from gliner_bento.privacy.plausible import is_plausible
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.word_names import word_names

PERSON_THRESHOLD = 0.2
"""Of a person with the form of a full name; others need `plausible.SURE`."""
_OF_NOBODY = frozenset(("city", "date", "country"))
_WRITER = re.compile(r"(?<![^\W_])(?:I|[Mm]y|me)(?![^\W_])")


def personal_spans(text: str, found: Iterable[LabeledSpan], *, announced: bool) -> list[LabeledSpan]:
    """The spans to replace. found: by the model and the recognizers, with the default labels. announced: whether to
    add what the text announces. In linear time."""
    spans = [*found]
    added = announced_in(text) if announced else []
    somebody = any(span.label not in _OF_NOBODY for span in added) or any(
        span.label not in _OF_NOBODY and (span.by_recognizer or is_plausible(text, span)) for span in spans
    )
    mentions_somebody = somebody or _WRITER.search(text) is not None
    kept = [
        span for span in spans if span.by_recognizer or is_plausible(text, span, mentions_somebody=mentions_somebody)
    ]
    return kept + added


def announced_in(text: str) -> list[LabeledSpan]:
    """What a text announces; spans may overlap."""
    return [*announced_names(text), *announced_places(text), *announced_numbers(text), *word_names(text)]

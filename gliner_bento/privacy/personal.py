"""The personal data in a text, by default: what the model and the recognizers found and can be some, and what the text
announces."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gliner_bento.privacy.announced_names import announced_names
from gliner_bento.privacy.announced_numbers import announced_numbers, with_all_digits
from gliner_bento.privacy.announced_places import announced_places, with_postcode
from gliner_bento.privacy.foreign_relatives import foreign_relatives
from gliner_bento.privacy.further_names import further_names
from gliner_bento.privacy.names_in_columns import names_in_columns
from gliner_bento.privacy.names_in_context import names_in_context
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.plausible import SURE, is_misread_person, is_plausible
from gliner_bento.privacy.recognizers.labels import DECOYS, PERSONAL_LABELS, for_model
from gliner_bento.privacy.related_names import related_names
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.word_names import with_given_name, word_names

PERSON_THRESHOLD = 0.1
"""Of a person with the form of a full name; others need more (`plausible`)."""
_OF_NOBODY = frozenset(("city", "date", "country", "organization", "url", "street address"))
_SOMEBODY = re.compile(
    r"(?<![^\W_])(?:I|[Mm]y|me|(?i:s?he|his|hers?|him|patient(?:in|e)?|widow(?:er)?|ich|mein\w{0,2}|je|mon|"
    r"yo|soy|io|ik|mijn))(?![^\W_])"
)
"""Words for the writer, or for somebody without a name."""


def personal_labels(recognizers: Collection[str], *, max_labels: int = -1, lowered: bool = True) -> dict[str, Any]:
    """The labels that the model reads by default, with their options as in a request.

    recognizers: those that run. max_labels: maximum number; -1: any. lowered: see `lowers_persons`.
    """
    personal = for_model(PERSONAL_LABELS, recognizers)
    decoys = () if 0 < max_labels < len(personal) + len(DECOYS) else DECOYS
    labels: dict[str, Any] = {label: {} for label in personal}
    labels |= {label: {"returned": False} for label in decoys}
    if lowered and "person" in labels:
        labels["person"] = {"threshold": PERSON_THRESHOLD}
    return labels


def lowers_persons(threshold: float | None, default: float, of_labels: Mapping[str, float]) -> bool:
    """Whether the threshold of persons is `PERSON_THRESHOLD`: if neither the request nor the server has set one."""
    return threshold is None and default == SURE and of_labels.get("person", SURE) >= SURE


def personal_spans(
    text: str, found: Iterable[LabeledSpan], *, announced: bool, sure: float = SURE
) -> list[LabeledSpan]:
    """The spans to replace. found: by the model, with `personal_labels`, and by the recognizers. announced: whether to
    add what the text announces. sure: see `is_plausible`. In linear time."""
    spans = [replace(span, label="person") if is_misread_person(text, span) else span for span in found]
    clues = Clues(text)
    added = announced_in(clues) if announced else []
    kept = [
        _whole(text, span) if announced and not span.by_recognizer else span
        for span in spans
        if span.by_recognizer or is_plausible(text, span, sure=sure)
    ]
    if announced:
        added += further_names(clues, [span for span in (*added, *kept) if span.label == "person"])
    if any(span.label not in _OF_NOBODY for span in (*added, *kept)) or _SOMEBODY.search(text):
        return kept + added
    kept = [span for span in kept if span.by_recognizer or is_plausible(text, span, mentions_somebody=False, sure=sure)]
    return kept + [span for span in added if span.label != "organization"]


def _whole(text: str, span: LabeledSpan) -> LabeledSpan:
    """What a model found, with the parts right beside it that it often leaves out."""
    add = _ADDED.get(span.label)
    return add(text, span) if add else span


_ADDED = {"person": with_given_name, "street address": with_postcode, "id number": with_all_digits}


def announced_in(clues: Clues) -> list[LabeledSpan]:
    """What a text announces; spans may overlap."""
    names = (*announced_names(clues), *names_in_columns(clues), *related_names(clues), *names_in_context(clues))
    names = (*names, *foreign_relatives(clues))
    return [*names, *word_names(clues.text), *announced_places(clues), *announced_numbers(clues)]

"""Recognizers in an extraction: which of them a request uses, and how matches are merged with the model's entities.

Uses entities and relations only through their fields, because `extraction.py`, which declares them, imports this.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from gliner_bento.errors import InvalidField, LimitExceeded
from gliner_bento.recognizers import find, phones
from gliner_bento.recognizers.base import Match
from gliner_bento.recognizers.find import resolved
from gliner_bento.recognizers.folding import folded
from gliner_bento.recognizers.labels import entities_of
from gliner_bento.tasks.base import ExtractionWarning, Limits
from gliner_bento.tasks.fields import Elements, Name

ALL, NONE = ("all",), ("none",)  # values of the setting `recognizers`
_SURE = 0.5  # score from which a match without a label in the answer excludes a phone number at its position

Source = Literal["model", "pattern"]
Recognizers = Annotated[bool, Field(strict=True)] | Elements[list[Name]]
Regions = Elements[list[Annotated[str, Field(max_length=10)]]]


def recognition_options(
    requested: bool | Sequence[str] | None, regions: Sequence[str] | None, labels: Mapping[str, str], limits: Limits
) -> dict[str, Any]:
    """The fields of an item for recognizers. labels: names with their descriptions. Raises InvalidField."""
    for index, name in enumerate([] if isinstance(requested, bool) else requested or []):
        check_known(name, find.RECOGNIZERS, f"recognizers.{index}", "recognizer")
    for index, region in enumerate(regions or ()):
        check_known(region, phones.regions(), f"phone_regions.{index}", "region")
    return {
        "recognizers": answer_labels(requested, labels, limits.recognizers),
        "phone_regions": list(limits.phone_regions if regions is None else regions),
    }


def check_known(name: str, known: Sequence[str], param: str, what: str) -> None:
    """Raise InvalidField for a name that is not known."""
    if name not in known:
        nearest = difflib.get_close_matches(name.upper(), known, n=1) if len(name) < 100 else ()
        suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise InvalidField(f"{param}: no {what} {name[:50]!r}{suggestion}", param=param)


def enabled(configured: Sequence[str]) -> Sequence[str]:
    """The recognizers that the server's setting enables."""
    if tuple(configured) == ALL:
        return find.RECOGNIZERS
    return () if tuple(configured) == NONE else configured


def answer_labels(
    requested: bool | Sequence[str] | None, labels: Mapping[str, str], configured: Sequence[str]
) -> dict[str, str]:
    """By recognizer, the label of its matches in the answer: the first of the request's labels that means its entity
    type. If there is none, the label of a recognizer that the request names is its name."""
    if not requested:
        return {}
    names = enabled(configured) if requested is True else requested
    chosen: dict[str, str] = {}
    for label, description in labels.items():
        for entity in entities_of(label) or entities_of(description):
            if entity in names or find.FORMS.get(entity) in names:  # such as IPv4 if `names` has IP_ADDRESS
                chosen.setdefault(entity, label)
    for name in () if requested is True else names:
        chosen.setdefault(name, name)
    return chosen


class MatchMerger:
    """Merges the matches of recognizers in a text and the model's entities into one list, in order of position.

    - A match replaces the entities that overlap with it. If the label of such an entity is not one of `labels`, its
      longest part that no match covers is kept; with `nested`, the whole entity is kept if it contains these matches.
    - An entity whose label means only types of `ALWAYS_FORMED` is kept only if it overlaps with a candidate of that
      label. A phone number is kept only if it looks like one, and overlaps with no sure candidate without a label.

    candidates: matches of any score, also of types without a label. labels: by entity type or pattern, the label in the
    answer. make: makes an entity of the answer from its fields and source. threshold: returns the threshold of a label.
    """

    def __init__(
        self,
        text: str,
        candidates: Sequence[Match],
        labels: Mapping[str, str],
        make: Callable[..., Any],
        threshold: Callable[[str], float],
        *,
        nested: bool = False,
    ) -> None:
        self._text, self._labels, self._make, self._nested = text, labels, make, nested
        self._match_labels = set(labels.values())
        labeled = ((match, self.label_of(match)) for match in candidates)
        accepted = [match for match, label in labeled if label and match.score >= threshold(label)]
        self.matches = resolved(accepted, len(text))
        # For each character, 1 if it is in a candidate of a label (`_formed`), or in a sure candidate without a label.
        self._formed = {label: bytearray(len(text)) for label in _always_formed(labels)}
        self._unlabeled = bytearray(len(text))
        for match in candidates:
            label = self.label_of(match)
            if label:
                covered = self._formed.get(label)
            elif match.score >= _SURE:
                covered = self._unlabeled
            else:
                covered = None
            if covered is not None:
                covered[match.start : match.end] = b"\1" * (match.end - match.start)
        self._ends = [match.end for match in self.matches]
        self._warnings: list[ExtractionWarning] = []
        self._merged: list[Any] = []
        self._index_of_match: list[int] = []  # in the answer, of each match that was appended
        # For each of the model's entities: True and its index in the answer; or, if it is dropped, False and the index
        # in `matches` of the first match that overlaps with it (-1: there is none).
        self._kept: list[tuple[bool, int]] = []

    def keep_best(self, number: int) -> None:
        """Keep the `number` matches with the highest scores, and add a warning to the result."""
        best = sorted(self.matches, key=lambda match: -match.score)[:number]
        self.matches = sorted(best, key=lambda match: match.start)
        self._ends = [match.end for match in self.matches]
        message = "recognizers found more than may be returned; the best by score are returned"
        self._warnings = [ExtractionWarning("max_entities", message)]

    def add(self, entities: Iterable[Any]) -> list[Any]:
        """Merge the model's next entities; returns the next entities of the answer, up to the last that is kept."""
        merged_before = len(self._merged)
        for entity in entities:
            first = end = bisect_right(self._ends, entity.start)  # range of the matches that overlap with the entity
            while end < len(self.matches) and self.matches[end].start < entity.end:
                end += 1
            kept = self._kept_part(entity, self.matches[first:end])
            if kept is None:
                self._kept.append((False, first if first < end else -1))
                continue
            self._append_matches(until=kept[0])
            self._kept.append((True, len(self._merged)))
            self._append(*kept, entity.label, entity.score, "model")
        return self._merged[merged_before:]

    def whole(self, result: Any) -> Any:
        """The result with the matches; in a stream, without the entities that `add` has returned."""
        merged_before = len(self._merged)
        self.add(result.entities)
        self._append_matches(until=len(self._text))
        relations = [
            replace(relation, head=head, tail=tail)
            for relation in result.relations
            if (head := self._argument(relation.head))
            and (tail := self._argument(relation.tail))
            and (head.entity_idx is None or head.entity_idx != tail.entity_idx)
        ]
        warnings = (*result.warnings, *self._warnings)
        return replace(result, entities=self._merged[merged_before:], relations=relations, warnings=warnings)

    def _kept_part(self, entity: Any, matches: Sequence[Match]) -> tuple[int, int] | None:
        """[start, end) of the part of an entity that is kept; None if nothing is. matches: all that overlap with it."""
        if not matches:
            return (entity.start, entity.end) if self._has_form(entity) else None
        has_match_label = entity.label in self._match_labels
        if self._nested:
            inside = all(entity.start <= match.start and match.end <= entity.end for match in matches)
            return (entity.start, entity.end) if inside and not has_match_label else None
        if has_match_label:
            return None
        starts = [entity.start, *(match.end for match in matches)]
        ends = [*(match.start for match in matches), entity.end]
        uncovered = [self._stripped(*part) for part in zip(starts, ends, strict=True)]
        start, end = max(uncovered, key=lambda part: part[1] - part[0])
        return (start, end) if any(map(str.isalnum, self._text[start:end])) else None

    def _has_form(self, entity: Any) -> bool:
        """Whether an entity has the form of its label; True if the label prescribes no form."""
        if entity.label == self._labels.get(phones.ENTITY):
            other_number = self._unlabeled.find(1, entity.start, entity.end) >= 0
            return not other_number and phones.may_be_phone(folded(entity.text)[0])
        formed = self._formed.get(entity.label)
        return formed is None or formed.find(1, entity.start, entity.end) >= 0

    def _stripped(self, start: int, end: int) -> tuple[int, int]:
        """[start, end) without spaces and punctuation at both ends."""
        while start < end and not self._text[start].isalnum():
            start += 1
        while start < end and not self._text[end - 1].isalnum():
            end -= 1
        return start, end

    def _append_matches(self, until: int) -> None:
        """Append the next matches that begin at or before the character `until`."""
        for match in self.matches[len(self._index_of_match) :]:
            if match.start > until:
                return
            self._index_of_match.append(len(self._merged))
            self._append(match.start, match.end, self.label_of(match), match.score, "pattern")

    def label_of(self, match: Match) -> str:
        """The label of the answer for a match; empty if it has none."""
        return self._labels.get(match.rule.name) or self._labels.get(match.entity, "")

    def _append(self, start: int, end: int, label: str, score: float, source: Source) -> None:
        self._merged.append(self._make(start, end, self._text[start:end], label, score, source))

    def _argument(self, argument: Any) -> Any:
        """An end of a relation in the answer: the entity, or the match that replaced it, or a span that is no entity;
        None if the entity is dropped."""
        if argument.entity_idx is None:
            return argument
        is_kept, index = self._kept[argument.entity_idx]
        if index < 0:
            return None
        if not is_kept:
            index = self._index_of_match[index]
        new = self._merged[index]
        return replace(argument, entity_idx=index, start=new.start, end=new.end, text=new.text, label=new.label)


def _always_formed(labels: Mapping[str, str]) -> set[str]:
    """The labels in the answer that are used only for entity types that always have a form."""
    return set(labels.values()) - {
        label for name, label in labels.items() if find.FORMS.get(name, name) not in find.ALWAYS_FORMED
    }


def recognizers_to_run(names: Iterable[str]) -> set[str]:
    """The recognizers to run for `names`: if phone numbers are among them, all recognizers, because the rest finds
    numbers that look like phone numbers."""
    return {*names, *(find.RECOGNIZERS if phones.ENTITY in names else ())}


def merger_of(item: Any, make: Callable[..., Any]) -> MatchMerger:
    """Run an item's recognizers; returns the merger of their matches. make: see `MatchMerger`.

    Raises LimitExceeded."""
    candidates = find.candidates(item.text, recognizers_to_run(item.recognizers), regions=item.phone_regions)

    def threshold(label: str) -> float:
        return float(item.label_thresholds.get(label, item.threshold))

    merger = MatchMerger(item.text, candidates, item.recognizers, make, threshold, nested=not item.flat_ner)
    if len(merger.matches) > item.max_entities:
        if item.on_limit == "error":
            message = f"recognizers: more than {item.max_entities} matches (max_entities); set on_limit to truncate"
            raise LimitExceeded(message, param="recognizers")
        merger.keep_best(item.max_entities)
    return merger

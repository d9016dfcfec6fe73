"""Recognizers in an extraction: which of them a request asks for, and how their matches join the model's entities.

Knows entities and relations by their fields only: `extraction.py` declares them.
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

ALL, NONE = ("all",), ("none",)
_SURE = 0.5

Source = Literal["model", "pattern"]
Recognizers = Annotated[bool, Field(strict=True)] | Elements[list[Name]]
Regions = Elements[list[Annotated[str, Field(max_length=10)]]]


def recognition_options(
    asked: bool | Sequence[str] | None, regions: Sequence[str] | None, labels: Mapping[str, str], limits: Limits
) -> dict[str, Any]:
    """The fields of the item. labels: names with their descriptions. Raises InvalidField."""
    for place, name in enumerate([] if isinstance(asked, bool) else asked or []):
        check_known(name, find.RECOGNIZERS, f"recognizers.{place}", "recognizer")
    for place, region in enumerate(regions or ()):
        check_known(region, phones.regions(), f"phone_regions.{place}", "region")
    return {
        "recognizers": answer_labels(asked, labels, limits.recognizers),
        "phone_regions": list(limits.phone_regions if regions is None else regions),
    }


def check_known(name: str, known: Sequence[str], param: str, what: str) -> None:
    """Raises InvalidField for a name that is not known."""
    if name not in known:
        nearest = difflib.get_close_matches(name.upper(), known, n=1) if len(name) < 100 else ()
        suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise InvalidField(f"{param}: no {what} {name[:50]!r}{suggestion}", param=param)


def enabled(configured: Sequence[str]) -> Sequence[str]:
    """The recognizers that the server's setting has."""
    return find.RECOGNIZERS if tuple(configured) == ALL else () if tuple(configured) == NONE else configured


def answer_labels(
    asked: bool | Sequence[str] | None, labels: Mapping[str, str], configured: Sequence[str]
) -> dict[str, str]:
    """The label that the answer has for what each recognizer finds: the caller's, if one means it; of recognizers that
    are asked for by name, else that name."""
    if not asked:
        return {}
    names = enabled(configured) if asked is True else asked
    chosen: dict[str, str] = {}
    for label, description in labels.items():
        for entity in entities_of(label) or entities_of(description):
            if entity in names or find.FORMS.get(entity) in names:
                chosen.setdefault(entity, label)
    for name in () if asked is True else names:
        chosen.setdefault(name, name)
    return chosen


class Merger:
    """What recognizers find in a text and the model's entities, in order of position, as one list.

    - A match wins over the entities that overlap with it: its label and its borders count. What is left of such an
      entity stays, if no recognizer knows its label; with `nested`, an entity around a match stays whole.
    - An entity of a label that always has a form (`ALWAYS_FORMED`) stays only where a candidate has it, a phone number
      only with digits for one that are nothing else.

    candidates: of the labels, and others. labels: of the answer, by entity type or pattern. made: of the fields of an
    entity, and its source.
    threshold: of a label.
    """

    def __init__(
        self,
        text: str,
        candidates: Sequence[Match],
        labels: Mapping[str, str],
        made: Callable[..., Any],
        threshold: Callable[[str], float],
        *,
        nested: bool = False,
    ) -> None:
        self._text, self._labels, self._made, self._nested = text, labels, made, nested
        self._known = set(labels.values())
        self.matches = resolved(
            [one for one in candidates if (label := self.label_of(one)) and one.score >= threshold(label)], len(text)
        )
        self._formed = {label: bytearray(len(text)) for label in _always_formed(labels)}
        self._others = bytearray(len(text))
        for one in candidates:
            label = self.label_of(one)
            marked = self._formed.get(label) if label else self._others if one.score >= _SURE else None
            if marked is not None:
                marked[one.start : one.end] = b"\1" * (one.end - one.start)
        self._ends = [match.end for match in self.matches]
        self._warnings: list[ExtractionWarning] = []
        self._merged: list[Any] = []
        self._place_of_match: list[int] = []
        self._places: list[tuple[bool, int]] = []
        """Of each entity: its place in the answer; of one that is not in it, the number of the match that is, or -1."""

    def keep_best(self, number: int) -> None:
        """Keep so many matches, those with the highest scores, and say so."""
        best = sorted(self.matches, key=lambda one: -one.score)[:number]
        self.matches = sorted(best, key=lambda one: one.start)
        self._ends = [match.end for match in self.matches]
        text = "recognizers found more than may be returned; the best by score are returned"
        self._warnings = [ExtractionWarning("max_entities", text)]

    def add(self, entities: Iterable[Any]) -> list[Any]:
        """The next entities, and the matches before them."""
        begin = len(self._merged)
        for entity in entities:
            first = bisect_right(self._ends, entity.start)
            last = first
            while last < len(self.matches) and self.matches[last].start < entity.end:
                last += 1
            left = self._left_of(entity, self.matches[first:last])
            if left is None:
                self._places.append((False, first if first < last else -1))
                continue
            self._put_matches(left[0])
            self._places.append((True, len(self._merged)))
            self._put(*left, entity.label, entity.score, "model")
        return self._merged[begin:]

    def whole(self, result: Any) -> Any:
        """A result with the matches. Of a stream, the rest: without what `add` has returned."""
        begin = len(self._merged)
        self.add(result.entities)
        self._put_matches(len(self._text))
        relations = [
            replace(one, head=head, tail=tail)
            for one in result.relations
            if (head := self._argument(one.head))
            and (tail := self._argument(one.tail))
            and head.entity_idx != tail.entity_idx
        ]
        warnings = (*result.warnings, *self._warnings)
        return replace(result, entities=self._merged[begin:], relations=relations, warnings=warnings)

    def _left_of(self, entity: Any, matches: Sequence[Match]) -> tuple[int, int] | None:
        """Where an entity stays that these matches overlap with."""
        if not matches:
            return (entity.start, entity.end) if self._has_form(entity) else None
        if self._nested:
            inside = all(entity.start <= one.start and one.end <= entity.end for one in matches)
            return (entity.start, entity.end) if inside and not self._is_known(entity) else None
        if self._is_known(entity):
            return None
        borders = [entity.start, *(place for one in matches for place in (one.start, one.end)), entity.end]
        pieces = [self._stripped(*piece) for piece in zip(borders[::2], borders[1::2], strict=True)]
        start, end = max(pieces, key=lambda piece: piece[1] - piece[0])
        return (start, end) if any(map(str.isalnum, self._text[start:end])) else None

    def _has_form(self, entity: Any) -> bool:
        """Whether it looks like what its label says, if there are few ways to look so."""
        if entity.label == self._labels.get(phones.ENTITY):
            is_other = self._others.find(1, entity.start, entity.end) >= 0
            return not is_other and phones.may_be_one(folded(entity.text)[0])
        formed = self._formed.get(entity.label)
        return formed is None or formed.find(1, entity.start, entity.end) >= 0

    def _is_known(self, entity: Any) -> bool:
        return entity.label in self._known

    def _stripped(self, start: int, end: int) -> tuple[int, int]:
        """A piece without the spaces and punctuation around it."""
        while start < end and not self._text[start].isalnum():
            start += 1
        while start < end and not self._text[end - 1].isalnum():
            end -= 1
        return start, end

    def _put_matches(self, until: int) -> None:
        """Those that begin at most there."""
        for match in self.matches[len(self._place_of_match) :]:
            if match.start > until:
                return
            self._place_of_match.append(len(self._merged))
            self._put(match.start, match.end, self.label_of(match), match.score, "pattern")

    def label_of(self, match: Match) -> str:
        """The label that the answer has for a match; empty: it has none."""
        return self._labels.get(match.rule.name) or self._labels.get(match.entity, "")

    def _put(self, start: int, end: int, label: str, score: float, source: Source) -> None:
        self._merged.append(self._made(start, end, self._text[start:end], label, score, source))

    def _argument(self, argument: Any) -> Any:
        """One end of a relation: the entity, or what it was replaced with; None: neither."""
        stays, number = self._places[argument.entity_idx]
        if number < 0:
            return None
        place = number if stays else self._place_of_match[number]
        one = self._merged[place]
        return replace(argument, entity_idx=place, start=one.start, end=one.end, text=one.text, label=one.label)


def _always_formed(labels: Mapping[str, str]) -> set[str]:
    """The labels of the answer that stand for nothing without a form."""
    return set(labels.values()) - {
        label for name, label in labels.items() if find.FORMS.get(name, name) not in find.ALWAYS_FORMED
    }


def with_others(names: Iterable[str]) -> set[str]:
    """Recognizers, and those that know what else a phone number may be."""
    return {*names, *(find.RECOGNIZERS if phones.ENTITY in names else ())}


def merger_of(item: Any, made: Callable[..., Any]) -> Merger:
    """Of an item with recognizers. Reads the text, which takes a while. Raises LimitExceeded."""
    candidates = find.candidates(item.text, with_others(item.recognizers), regions=item.phone_regions)

    def threshold(label: str) -> float:
        return float(item.label_thresholds.get(label, item.threshold))

    merger = Merger(item.text, candidates, item.recognizers, made, threshold, nested=not item.flat_ner)
    if len(merger.matches) > item.max_entities:
        if item.on_limit == "error":
            message = f"recognizers: more than {item.max_entities} matches (max_entities); set on_limit to truncate"
            raise LimitExceeded(message, param="recognizers")
        merger.keep_best(item.max_entities)
    return merger

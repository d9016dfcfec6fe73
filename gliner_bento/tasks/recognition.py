"""Recognizers in an extraction: which of them a request uses, and how matches are merged with the model's entities.

Uses entities and relations only through their fields, because `extraction.py`, which declares them, imports this.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from gliner_bento.errors import InvalidField, LimitExceeded
from gliner_bento.privacy.lists import NOTHING, Listed
from gliner_bento.privacy.recognizers import find, phones
from gliner_bento.privacy.recognizers.base import Match
from gliner_bento.privacy.recognizers.find import resolved
from gliner_bento.privacy.recognizers.folding import folded
from gliner_bento.privacy.recognizers.labels import entities_of
from gliner_bento.privacy.recognizers.spelled import unspelled
from gliner_bento.tasks.base import ExtractionWarning, Limits
from gliner_bento.tasks.fields import Elements, Names

ALL, NONE = ("all",), ("none",)  # values of the setting `recognizers`
_KNOWN = {**dict.fromkeys(find.RECOGNIZERS, ""), **find.FORMS}
_SURE = 0.5  # score from which a match replaces any entity, and excludes a phone number at its position

Source = Literal["model", "pattern"]
Recognizers = Annotated[bool, Field(strict=True)] | Names
Requested = bool | Sequence[str] | Mapping[str, str]
Regions = Elements[list[Annotated[str, Field(max_length=10)]]]

RecognizersOption = Annotated[
    Recognizers | None,
    Field(
        description="Recognizers to use besides the model: they find e-mail addresses, cards, IBANs, phone numbers "
        "and the like by patterns and check digits. `true`: those for the request's labels, or all if "
        "it has none; or a list of names (CREDIT_CARD), or {name: label of its matches}. Matches "
        "replace the model's entities that overlap with them; each entity has its `source`."
    ),
]
PhoneRegionsOption = Annotated[
    Regions | None,
    Field(
        description="Codes (US, DE) of regions whose phone numbers are found without a country code. Default: the "
        "server's phone_regions."
    ),
]


def recognition_options(
    requested: Requested | None, regions: Sequence[str] | None, labels: Mapping[str, str], limits: Limits
) -> dict[str, Any]:
    """The fields of an item for recognizers. labels: names with their descriptions. Raises InvalidField."""
    for index, name in enumerate([] if isinstance(requested, bool) else requested or []):
        place = name[:50] if isinstance(requested, Mapping) else index
        check_known(name, _KNOWN, f"recognizers.{place}", "recognizer")
    for index, region in enumerate(regions or ()):
        check_known(region, phones.regions(), f"phone_regions.{index}", "region")
    return {
        "recognizers": answer_labels(requested, labels, limits.recognizers),
        "phone_regions": list(limits.phone_regions if regions is None else regions),
    }


def check_known(name: str, known: Collection[str], param: str, what: str) -> None:
    """Raise InvalidField for a name that is not known."""
    if name not in known:
        nearest = _nearest(name.upper(), known) if len(name) < 100 else []
        suggestion = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise InvalidField(f"{param}: no {what} {name[:50]!r}{suggestion}", param=param)


def _nearest(name: str, known: Collection[str]) -> list[str]:
    """The known name that is most similar, or the first one that contains `name`."""
    return difflib.get_close_matches(name, known, n=1) or [longer for longer in known if name and name in longer][:1]


def enabled(configured: Sequence[str]) -> Sequence[str]:
    """The recognizers that the server's setting enables."""
    if tuple(configured) == ALL:
        return find.RECOGNIZERS
    return () if tuple(configured) == NONE else configured


def answer_labels(requested: Requested | None, labels: Mapping[str, str], configured: Sequence[str]) -> dict[str, str]:
    """By recognizer, the label of its matches in the answer: the one that the request names for it, or the first of
    the request's labels that means its entity type. If there is none, the label of a recognizer that the request names
    is its name; the same holds for all enabled recognizers if the request has no labels."""
    if not requested:
        return {}
    names = enabled(configured) if requested is True else requested
    chosen = dict(requested) if isinstance(requested, Mapping) else {}
    for label, description in labels.items():
        for entity in entities_of(label) or entities_of(description):
            if entity in names or find.FORMS.get(entity) in names:  # such as IPv4 if `names` has IP_ADDRESS
                chosen.setdefault(entity, label)
    for name in () if requested is True and labels else names:
        chosen.setdefault(name, name)
    return chosen


class MatchMerger:
    """Merges the matches of recognizers in a text and the model's entities into one list, in order of position.

    - A match replaces the entities that overlap with it if it is sure, or if its score is at least theirs. If the label
      of such an entity is not one of `labels`, its longest part that no such match covers is kept; with `nested`, the
      whole entity is kept if it contains these matches. An entity that is kept replaces the other matches.
    - An entity whose label means only types of `ALWAYS_FORMED` is kept only if it overlaps with a candidate of that
      label. A phone number is kept only if it looks like one, and overlaps with no sure candidate without a label.
    - Matches below the threshold of their label take part in this, and are left out then: a higher threshold never adds
      an entity.
    - What an allow list has takes no part in this, so that it hides nothing. What a deny list has is returned, and wins
      over all other matches.

    candidates: matches of any score, also of types without a label. labels: by entity type or pattern, the label in the
    answer. make: makes an entity of the answer from its fields and source. threshold: returns the threshold of a label.
    listed: what lists say about the text.
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
        listed: Listed = NOTHING,
    ) -> None:
        self._text, self._labels, self._make, self._nested = text, labels, make, nested
        self._match_labels = set(labels.values())
        labeled = [match for match in candidates if self.label_of(match) and not listed.allows(match.start, match.end)]
        labeled += listed.matches
        self._matches = resolved(labeled, len(text))
        # Indexes in `_matches`: of those that are not returned, and of those that an entity replaced.
        self._left_out = {
            index for index, match in enumerate(self._matches) if match.score < threshold(self.label_of(match))
        }
        self._replaced: set[int] = set()
        self._accepted = [match for match in labeled if match.score >= threshold(self.label_of(match))]
        self._cut: list[Any] = []  # parts of the model's entities besides the longest, which is kept
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
        self._ends = [match.end for match in self._matches]
        self._warnings: list[ExtractionWarning] = []
        self._merged: list[Any] = []
        self._next = 0  # index of the first match that is not in the answer, and may still be
        self._index_of_match: dict[int, int] = {}  # in the answer, by index in `_matches`
        # For each of the model's entities: True and its index in the answer; or, if it is dropped, False and the index
        # in `_matches` of the first match that replaces it (-1: there is none).
        self._kept: list[tuple[bool, int]] = []

    @property
    def matches(self) -> Sequence[Match]:
        """The matches that are returned, unless entities replace them."""
        return [match for index, match in enumerate(self._matches) if index not in self._left_out]

    def keep_best(self, number: int) -> None:
        """Keep the `number` matches with the highest scores, and add a warning to the result."""
        returned = [index for index in range(len(self._matches)) if index not in self._left_out]
        self._left_out.update(sorted(returned, key=lambda index: -self._matches[index].score)[number:])
        message = "recognizers found more than may be returned; the best by score are returned"
        self._warnings = [ExtractionWarning("max_entities", message)]

    def add(self, entities: Iterable[Any]) -> list[Any]:
        """Merge the model's next entities; returns the next entities of the answer, up to the last that is kept."""
        merged_before, entities = len(self._merged), list(entities)
        by_score = sorted(range(len(entities)), key=lambda index: -entities[index].score)
        decided = {index: self._decide(entities[index]) for index in by_score}
        for index, entity in enumerate(entities):
            kept, replaced_by = decided[index]
            if kept is None:
                self._kept.append((False, replaced_by))
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

    def cut(self, entities: Iterable[Any]) -> tuple[list[Any], list[Match]]:
        """What reaches beyond `entities`, which `whole` has returned: other parts of the model's entities, and sure
        matches, such as a URL with an e-mail address. A text without both keeps nothing of what was found."""
        covered = bytearray(len(self._text))
        for entity in entities:
            covered[entity.start : entity.end] = b"\1" * (entity.end - entity.start)

        def reaches_beyond(match: Match) -> bool:
            at = covered.find(0, match.start, match.end)
            while at >= 0 and not self._text[at].isalnum():
                at = covered.find(0, at + 1, match.end)
            return at >= 0

        sure = (match for match in self._accepted if match.score >= _SURE)
        return self._cut, [match for match in sure if reaches_beyond(match)]

    def _decide(self, entity: Any) -> tuple[tuple[int, int] | None, int]:
        """See `_kept_part`; and the index of the first match that replaces an entity or a part of it (-1: none). Notes
        the matches that the entity replaces. Of entities that overlap with one match, the best must come first."""
        first = end = bisect_right(self._ends, entity.start)  # range of the matches that overlap with the entity
        while end < len(self._matches) and self._matches[end].start < entity.end:
            end += 1
        stronger = [index for index in range(first, end) if self._is_stronger(index, entity.score)]
        kept = self._kept_part(entity, [self._matches[index] for index in stronger])
        if kept:
            for index in {*range(first, end)}.difference(stronger):
                match = self._matches[index]
                inside = kept[0] <= match.start and match.end <= kept[1] and entity.label not in self._match_labels
                if match.start < kept[1] and match.end > kept[0] and not (self._nested and inside):
                    self._replaced.add(index)
        return kept, stronger[0] if stronger else -1

    def _is_stronger(self, index: int, score: float) -> bool:
        """Whether a match replaces an entity with this score. In a stream, it may be in the answer already."""
        match_score = self._matches[index].score
        is_better = match_score >= min(_SURE, score) and index not in self._replaced
        return is_better or index in self._index_of_match

    def _kept_part(self, entity: Any, matches: Sequence[Match]) -> tuple[int, int] | None:
        """[start, end) of the part of an entity that is kept; None if nothing is. matches: those that replace it."""
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
        stripped = (self._stripped(*part) for part in zip(starts, ends, strict=True))
        uncovered = [part for part in stripped if part[0] < part[1]]
        kept = max(uncovered, key=lambda part: part[1] - part[0], default=None)
        self._cut += [self._made(*part, entity.label, entity.score, "model") for part in uncovered if part != kept]
        return kept

    def _has_form(self, entity: Any) -> bool:
        """Whether an entity has the form of its label; True if the label prescribes no form."""
        if entity.label == self._labels.get(phones.ENTITY):
            other_number = self._unlabeled.find(1, entity.start, entity.end) >= 0
            return not other_number and phones.may_be_phone(unspelled(folded(entity.text)).text)
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
        while self._next < len(self._matches) and (match := self._matches[self._next]).start <= until:
            if self._next not in self._left_out | self._replaced:
                self._index_of_match[self._next] = len(self._merged)
                self._append(match.start, match.end, self.label_of(match), match.score, "pattern")
            self._next += 1

    def label_of(self, match: Match) -> str:
        """The label of the answer for a match; empty if it has none."""
        if match.is_denied:
            return match.entity
        return self._labels.get(match.rule.name) or self._labels.get(match.entity, "")

    def _append(self, start: int, end: int, label: str, score: float, source: Source) -> None:
        self._merged.append(self._made(start, end, label, score, source))

    def _made(self, start: int, end: int, label: str, score: float, source: Source) -> Any:
        return self._make(start, end, self._text[start:end], label, score, source)

    def _argument(self, argument: Any) -> Any:
        """An end of a relation in the answer: the entity, or the match that replaced it, or a span that is no entity;
        None if the entity is dropped."""
        if argument.entity_idx is None:
            return argument
        is_kept, place = self._kept[argument.entity_idx]
        index = place if is_kept else self._index_of_match.get(place)
        if index is None:
            return None
        new = self._merged[index]
        return replace(argument, entity_idx=index, start=new.start, end=new.end, text=new.text, label=new.label)


class AllFound(MatchMerger):
    """Returns all matches, and all entities that overlap with one or have a form, for texts in which all that was found
    is replaced. Spans may overlap; there are no relations."""

    def whole(self, result: Any) -> Any:
        """The result with the matches."""
        matched = bytearray(len(self._text))
        for match in self._accepted:
            matched[match.start : match.end] = b"\1" * (match.end - match.start)
        found = [
            self._made(entity.start, entity.end, entity.label, entity.score, "model")
            for entity in result.entities
            if matched.find(1, entity.start, entity.end) >= 0 or self._has_form(entity)
        ]
        found += [
            self._made(match.start, match.end, self.label_of(match), match.score, "pattern") for match in self._accepted
        ]
        found.sort(key=lambda entity: (entity.start, entity.end))
        return replace(result, entities=found, relations=(), warnings=(*result.warnings, *self._warnings))


def _always_formed(labels: Mapping[str, str]) -> set[str]:
    """The labels in the answer that are used only for entity types that always have a form."""
    return set(labels.values()) - {
        label for name, label in labels.items() if find.FORMS.get(name, name) not in find.ALWAYS_FORMED
    }


def recognizers_to_run(names: Iterable[str]) -> set[str]:
    """The recognizers to run for `names`: if phone numbers are among them, all recognizers, because the rest finds
    numbers that look like phone numbers."""
    return {*names, *(find.RECOGNIZERS if phones.ENTITY in names else ())}


def merger_of(item: Any, make: Callable[..., Any], kind: type[MatchMerger] = MatchMerger) -> MatchMerger:
    """Run an item's recognizers; returns the merger of their matches. make: see `MatchMerger`.

    Raises LimitExceeded."""
    names = recognizers_to_run(item.recognizers)
    candidates = find.candidates(item.text, names, regions=item.phone_regions) if names else []

    def threshold(label: str) -> float:
        return float(item.label_thresholds.get(label, item.threshold))

    listed = Listed(item.allowed, item.denied)
    merger = kind(item.text, candidates, item.recognizers, make, threshold, nested=not item.flat_ner, listed=listed)
    if len(merger.matches) > item.max_entities:
        if item.on_limit == "error":
            param = "recognizers" if item.recognizers else "deny_list"
            message = f"{param}: more than {item.max_entities} matches (max_entities); set on_limit to truncate"
            raise LimitExceeded(message, param=param)
        merger.keep_best(item.max_entities)
    return merger

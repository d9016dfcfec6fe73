"""The table of recognizers by Presidio's names, and what they find in a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gliner_bento.recognizers import identity, network, numbers, phones, words
from gliner_bento.recognizers.base import CONTEXT_SCORE, MIN_CONTEXT_SCORE, Match, Rule, starts_of
from gliner_bento.recognizers.folding import folded

RULES = (*numbers.RULES, *identity.RULES, *network.RULES, *phones.RULES, *words.RULES)
RECOGNIZERS = tuple(dict.fromkeys(rule.entity for rule in RULES))
"""The entity types that recognizers find, by Presidio's names."""

FORMS = {rule.name: rule.entity for rule in RULES if rule.name}
"""The entity type of each pattern that has a name: IP_ADDRESS for IPv4 and IPv6."""

ALWAYS_FORMED = frozenset(("CREDIT_CARD", "EMAIL_ADDRESS", "IBAN_CODE", "IP_ADDRESS", "MAC_ADDRESS", "US_SSN"))
"""Entity types whose texts always have a form that a recognizer knows: a model's entity without this form is wrong."""

DEFAULT_REGIONS = ("US", "GB", "DE", "FR", "IL", "IN", "CA", "BR")
"""Presidio's default regions of phone numbers."""


def find(
    text: str,
    entities: Iterable[str] = RECOGNIZERS,
    *,
    regions: Sequence[str] = DEFAULT_REGIONS,
    min_score: float = 0.5,
) -> list[Match]:
    """The matches with at least `min_score` in a text, in order, without overlaps. See `candidates`, `resolved`."""
    found = candidates(text, entities, regions=regions)
    return resolved([match for match in found if match.score >= min_score], len(text))


def candidates(
    text: str, entities: Iterable[str], *, regions: Sequence[str] = DEFAULT_REGIONS, context: Iterable[str] = ()
) -> list[Match]:
    """All matches in a text, of any score, in linear time. regions: of phone numbers. context: see `FoldedWords`."""
    wanted = set(entities)
    folded_text, index_of = folded(text)
    rules = [rule for rule in RULES if rule.entity in wanted or rule.name in wanted]
    return [
        replace(match, start=index_of[match.start], end=index_of[match.end - 1] + 1)
        for match in _matches(folded_text, rules, regions, context)
    ]


def _matches(text: str, rules: Sequence[Rule], regions: Sequence[str], context: Iterable[str]) -> Iterator[Match]:
    """All matches in a folded text. A word near a match raises its score."""
    starts = starts_of(text)
    near_words = words.FoldedWords(rules, text, starts, context)
    for rule in rules:
        if rule.score == 0:  # matches need a word: right before them, or from outside the text (`context`)
            yield from near_words.behind(rule)
            if word := near_words.outside(rule):
                yield from (words.named(match, word, words.OUTSIDE) for match in rule.matches(text, starts))
            continue
        is_phone = rule.entity == phones.ENTITY
        for match in (phones.Phones(regions) if is_phone else rule).matches(text, starts):
            word, distance = near_words.near(rule, match.start) if match.score < 1 else ("", 0)
            if word:
                yield _with_word(match, word, distance)
            elif not (is_phone and phones.needs_word(match, text)):
                yield match


def _with_word(match: Match, word: str, distance: int) -> Match:
    score = max(match.score + CONTEXT_SCORE, MIN_CONTEXT_SCORE)
    return replace(match, score=min(1.0, score) if match.valid is None else 1.0, word=word, distance=distance)


def resolved(matches: Iterable[Match], chars: int) -> list[Match]:
    """The matches in order of position, without overlaps.

    Of overlapping matches, one is kept: that with the highest score; of equal scores, one with a word near it, then the
    longest. A word counts only for the matches that it is nearest to. chars: length of the text.
    """
    matches = list(matches)
    distances = _word_distances(matches, chars)

    def rank(match: Match) -> tuple[float, bool, int]:
        named = bool(match.word) and match.distance == min(distances[match.start : match.end])
        score = match.score if named or not match.word else match.base
        return -score, not named, match.start - match.end

    taken, kept = bytearray(chars), []
    for match in sorted(matches, key=rank):
        if taken.find(1, match.start, match.end) < 0:
            taken[match.start : match.end] = b"\1" * (match.end - match.start)
            kept.append(match)
    return sorted(kept, key=lambda match: match.start)


def _word_distances(matches: Sequence[Match], chars: int) -> bytearray:
    """For each character, how far away the nearest word of a match with this character is; 255 if there is none."""
    distances = bytearray(b"\xff" * chars)
    for match in sorted((match for match in matches if match.word), key=lambda match: -match.distance):
        distances[match.start : match.end] = bytes([match.distance]) * (match.end - match.start)
    return distances

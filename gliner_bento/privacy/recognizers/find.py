"""The table of recognizers by Presidio's names, and what they find in a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gliner_bento.privacy.recognizers import identity, network, numbers, phones, secrets, words
from gliner_bento.privacy.recognizers.base import CONTEXT_SCORE, MIN_CONTEXT_SCORE, Match, Rule
from gliner_bento.privacy.recognizers.folding import folded
from gliner_bento.privacy.recognizers.joined import is_plausible, joined
from gliner_bento.privacy.recognizers.spelled import unspelled
from gliner_bento.privacy.recognizers.starts import Groups, Starts

RULES = (*numbers.RULES, *identity.RULES, *network.RULES, *phones.RULES, *words.RULES, *secrets.RULES)
GROUPS = Groups(RULES)
RECOGNIZERS = tuple(dict.fromkeys(rule.entity for rule in RULES))
"""The entity types that recognizers find, by Presidio's names."""

FORMS = {rule.name: rule.entity for rule in RULES if rule.name}
"""The entity type of each pattern that has a name: IP_ADDRESS for IPv4 and IPv6."""

ALWAYS_FORMED = frozenset(("CREDIT_CARD", "EMAIL_ADDRESS", "IBAN_CODE", "IP_ADDRESS", "MAC_ADDRESS", "US_SSN"))
"""Entity types whose texts always have a form that a recognizer knows: a model's entity without this form is wrong."""

_NEEDS_NO_WORD = "+("
"""First characters of divided phone numbers that need no word near them."""

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
    read = unspelled(folded(text))
    rules = [rule for rule in RULES if rule.entity in wanted or rule.name in wanted]
    matches = _matches(read.text, rules, regions, context)
    return [_moved(match, *read.span(match.start, match.end)) for match in matches]


def _matches(text: str, rules: Sequence[Rule], regions: Sequence[str], context: Iterable[str]) -> list[Match]:
    """All matches in a folded text. A word near a match raises its score."""
    starts = Starts(text, GROUPS)
    near_words = words.FoldedWords(rules, text, starts.every, context)
    whole = list(_whole(text, starts, rules, regions, near_words))
    divided = list(_divided(text, rules, regions, near_words, whole))
    proved = _chars_of((match for match in divided if match.score == 1), len(text))
    # A part of a divided number may look like a phone number.
    return [match for match in whole if match.entity != phones.ENTITY or not _is_in(match, proved)] + divided


def _whole(
    text: str, starts: Starts, rules: Sequence[Rule], regions: Sequence[str], near_words: words.FoldedWords
) -> Iterator[Match]:
    """The matches in the text as it is."""
    for rule in rules:
        if rule.score == 0:  # matches need a word: right before them, or from outside the text (`context`)
            yield from near_words.behind(rule)
            if word := near_words.outside(rule):
                yield from (words.named(match, word, words.OUTSIDE) for match in rule.matches(text, starts.of(rule)))
            continue
        if rule.needs_word and not near_words.has(rule):
            continue
        is_phone = rule.entity == phones.ENTITY
        for match in _matches_of(rule, text, starts.of(rule), regions):
            word, distance = near_words.near(rule, match.start) if match.score < 1 else ("", 0)
            if word:
                yield _with_word(match, word, distance)
            elif not (rule.needs_word or (is_phone and phones.needs_word(match, text))):
                yield match


def _divided(
    text: str, rules: Sequence[Rule], regions: Sequence[str], near_words: words.FoldedWords, whole: Sequence[Match]
) -> Iterator[Match]:
    """The matches that a gap divides (`joined`), if none is complete without it. Phone numbers must be valid."""
    divided = joined(text)
    if not divided:
        return
    read = divided.read
    proved = [match for match in whole if match.valid]
    others = _chars_of((match for match in proved if match.score == 1 and match.entity != phones.ENTITY), len(text))
    starts = Starts(read.text, GROUPS, divided.before_gaps)
    if 1 in others:
        starts.leave_out(lambda start: others[read.starts[start]])
    for rule in rules:
        tried = _starts_of_divided(rule, read.text, starts, near_words)
        if not tried:
            continue
        own = _chars_of((match for match in proved if match.entity == rule.entity), len(text))
        for found in _matches_of(rule, read.text, tried, regions):
            start, end = read.span(found.start, found.end)
            is_invalid = found.entity == phones.ENTITY and not phones.is_valid(found)
            if is_invalid or text[start:end] == read.text[found.start : found.end]:
                continue
            match = _moved(found, start, end)
            if _goes_on(match, text, own, others):
                continue
            word, distance = near_words.near(rule, match.start)
            if word:
                yield _with_word(match, word, distance)
            elif _needs_no_word(match, text):
                yield match


def _starts_of_divided(rule: Rule, text: str, starts: Starts, near_words: words.FoldedWords) -> Sequence[int]:
    """Where divided matches of a rule may begin, for which a word is near, or that need none."""
    if rule.score == 0 or rule.sign:
        return ()
    if near_words.has(rule) or rule.score == 1:
        return starts.of(rule)
    return [start for start in starts.of(rule) if text[start] in _NEEDS_NO_WORD] if rule.entity == phones.ENTITY else ()


def _matches_of(rule: Rule, text: str, starts: Sequence[int], regions: Sequence[str]) -> Iterator[Match]:
    """The matches of a rule that begin at `starts`, with the rule's score."""
    return (phones.Phones(regions) if rule.entity == phones.ENTITY else rule).matches(text, starts)


def _needs_no_word(match: Match, text: str) -> bool:
    """Whether a divided match is one also without a word near it: because of its check digit, if it does not look like
    columns, or because of the country code or the brackets of a phone number."""
    if match.entity == phones.ENTITY:
        return text[match.start] in _NEEDS_NO_WORD
    return match.score == 1 and is_plausible(text, match.start, match.end)


def _goes_on(match: Match, text: str, own: bytearray, others: bytearray) -> bool:
    """Whether a divided match is a proved match and what comes before or after it. A phone number may only lack its
    country code; a number of another kind may be a part of the match. own, others: the characters of proved matches."""
    if others[match.start] or (others[match.end - 1] and any(others[match.end : match.end + 1])):
        return True
    return _is_in(match, own) and not (text[match.start] == "+" and not own[match.start])


def _moved(match: Match, start: int, end: int) -> Match:
    return match._replace(start=start, end=end)


def _chars_of(matches: Iterable[Match], chars: int) -> bytearray:
    """For each character of a text, whether it is in a match."""
    taken = bytearray(chars)
    for match in matches:
        taken[match.start : match.end] = b"\1" * (match.end - match.start)
    return taken


def _is_in(match: Match, taken: bytes | bytearray) -> bool:
    return taken.find(1, match.start, match.end) >= 0


def _with_word(match: Match, word: str, distance: int) -> Match:
    score = max(match.score + CONTEXT_SCORE, MIN_CONTEXT_SCORE)
    return match._replace(score=min(1.0, score) if match.valid is None else 1.0, word=word, distance=distance)


def resolved(matches: Iterable[Match], chars: int) -> list[Match]:
    """The matches in order of position, without overlaps.

    Of overlapping matches, one is kept: one of a deny list, or that with the highest score; of equal scores, one with a
    word near it, then the longest. A word counts only for the matches that it is nearest to. chars: length of the text.
    """
    matches = list(matches)
    distances = _word_distances(matches, chars)

    def rank(match: Match) -> tuple[bool, float, bool, int]:
        named = bool(match.word) and match.distance == min(distances[match.start : match.end])
        score = match.score if named or not match.word else match.base
        return not match.is_denied, -score, not named, match.start - match.end

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

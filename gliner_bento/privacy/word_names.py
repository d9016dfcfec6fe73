"""English names that are also words, such as Hope and Will, judged by their capitals and by what is around them: models
that read no capitals miss some, and take the words for names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gliner_bento.privacy.name_words import NO_SURNAMES, PERSON_VERBS, WORD_NAMES, words_of
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.55
_TOKEN = re.compile(r"[A-Z][a-z]{1,20}")
_AUXILIARIES = words_of("will may mark grant chase see drew pat hope skip guy win")
"""Words that begin questions, requests and other sentences."""
_TIMES = words_of("april may june august spring summer autumn winter dawn friday")
_THINGS = words_of(
    "rain sky storm stone star river summer winter autumn honey pepper olive sage candy victory liberty tiger wolf "
    "bear lotus ember eden genesis fable nova justice mercy harmony unity trinity temple forest bay brook bud coral "
    "crystal jade jewel magnolia lavender flint fern mason miles pine pip porter precious price rocky scarlet "
    "serenity shepherd shell sterling sunny tulip union valor victor violet ward whisper win zen kit link lane "
    "baker cook fisher cash"
)
"""Words that are rather a part of the name of a thing before another word with a capital: Summer Sale, Pepper Spray."""
_GOES_ON = re.compile(r"[\w(=-]|[ ]{0,2}#?\d")
"""Behind a word that is a part of something else: `Hope-driven`, `Ward 7`."""
_AGE = re.compile(r",[ ]\d{1,2}(?:,|[ ]?(?:years?|y/?o|[MmFf])(?![^\W_]))")
"""Behind a name, but not behind a month."""
_SURNAME = re.compile(r"[ ]([A-Z][a-z]{1,20})(?![^\W_])")
_CAPITAL = re.compile(r"[ ][A-Z]")
"""Behind two words with capitals: a heading, or the name of something else."""
_QUESTION = re.compile(r"[^.!?\n]{0,200}\?")
_PERSON_VERB = re.compile(
    rf"[ ](?:{PERSON_VERBS}|lives|lived|works|worked|lost (?:her|his)|found (?:her|his)|gave (?:her|his|me|us|him)|"
    r"helped (?:me|us|him|her)|and (?:I|her|his|my)|"
    r"(?:and|,) [A-Z][a-z]+ are (?:twins|siblings|friends|married|sisters|brothers)|has never been|"
    r"got (?:up|married|a)|gets up|plays|played|supports|saved (?:her|his|me|us)|sat|ran|arrived|"
    r"left (?:her|his|early|for))(?![^\W_])"
)
_BEFORE_PERSON = re.compile(
    r"(?:(?<![^\W_])(?:with|met|meet|told|tell|ask|asked|thank|thanked|love|miss|call|called|invite|invited|know|"
    r"knows|married|"
    r"helped|visited|text|texted|"
    r"email|emailed|brother|sister|friend|wife|husband|son|daughter|mother|father|colleague|neighbou?r|cousin|aunt|"
    r"uncle|niece|nephew|boss|"
    r"partner|girlfriend|boyfriend|teacher|driver|named|said|says|asked|that|give|gave|and|by|to|for|from|like|"
    r"believe|when|while|because|if|"
    r"but|see|saw|let|remind|nurse|doctor|coach)[ ]|[\"“(])\Z",
    re.IGNORECASE,
)
_GIVEN = re.compile(r"([A-Z][a-z]{1,20})[ ]\Z")
_MAX_GIVEN_CHARS = 22
_WINDOW = 14
_SENTENCE_START = re.compile(r"(?:\A|[.!?:]|[\n\"“(>-])[ \t\"“(]*\Z")


def word_names(text: str) -> Iterator[LabeledSpan]:
    """The names among the words of `WORD_NAMES` in a text."""
    if text.isupper() or not any(map(str.islower, text)):
        return
    end = 0
    for match in _TOKEN.finditer(text):
        start = match.start()
        if start < end or match[0].lower() not in WORD_NAMES or text[start - 1 : start].isalnum():
            continue
        last = _end_of_name(text, match)
        if last is not None:
            end = last
            yield LabeledSpan(start, last, "person", by_recognizer=True, score=_SCORE)


def with_given_name(text: str, span: LabeledSpan) -> LabeledSpan:
    """A name with a word of `WORD_NAMES` right before it, which a model may have left out: Star in Star Jones."""
    before = _GIVEN.search(text, max(0, span.start - _MAX_GIVEN_CHARS), span.start)
    if before is None or before[1].lower() not in WORD_NAMES or text[before.start() - 1 : before.start()].isalnum():
        return span
    is_first = _SENTENCE_START.search(text[max(0, before.start() - _WINDOW) : before.start()]) is not None
    is_question = is_first and before[1].lower() in _AUXILIARIES and _QUESTION.match(text, span.end) is not None
    return span if is_question else span.at(before.start(), span.end)


def _end_of_name(text: str, match: re.Match[str]) -> int | None:
    """Where a name ends that begins with a word; None if the word is none."""
    start, end, word = match.start(), match.end(), match[0].lower()
    if _GOES_ON.match(text, end):
        return None
    before = text[max(0, start - _WINDOW) : start]
    is_first = _SENTENCE_START.search(before) is not None
    surname = _SURNAME.match(text, end)
    if surname:
        is_thing = word in _THINGS or surname[1].lower() in NO_SURNAMES or _CAPITAL.match(text, surname.end())
        is_question = is_first and word in _AUXILIARIES and _QUESTION.match(text, surname.end())
        return None if is_thing or is_question else surname.end()
    if is_first or before.endswith(", ") or word in _TIMES:
        is_name = _PERSON_VERB.match(text, end) or (word not in _TIMES and _AGE.match(text, end))
    else:
        is_name = _BEFORE_PERSON.search(before) or _AGE.match(text, end)
    return end if is_name else None

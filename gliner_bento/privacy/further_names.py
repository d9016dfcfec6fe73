"""Names that other finds of a text lead to: parts of a full name, who is named together with a person, and who an
English pronoun stands for, as Denali in "We looked for Denali. He had gone."
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from gliner_bento.privacy.name_words import (
    MEDICAL,
    NO_GIVEN_NAMES,
    NO_SURNAMES,
    PERSON_VERBS,
    WORD_NAMES,
    chars_before_name,
    has_role,
    words_of,
)
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan, merged

_SCORE = 0.55
_WORD = r"[A-Z][a-zà-ÿ]{1,20}(?:['’-][A-Z][a-zà-ÿ]{1,20})?"
_PART = re.compile(r"[^\W\d_]{3,30}")
_THING = re.compile(r"(?<![^\W_])(?:an?|the|in|at|into|near|via|since|my|your|his|her|our|their)[ ]\Z", re.IGNORECASE)
_PLACE = re.compile(
    r"(?<![^\W_])(?:of|to|from|around|over|across|visit(?:ed|ing|s)?|like[ds]?|love[ds]?)[ ]\Z", re.IGNORECASE
)
_BEFORE_CHARS = 12
_FAMILY = re.compile(r"(?<![^\W_])[Tt]he[ ](?P<name>(?P<surname>[A-Z][a-zà-ÿ]{2,20})s)(?![^\W_])")
_TOGETHER = re.compile(rf"[ ](?:and|&)[ ](?P<name>{_WORD}(?:[ ]{_WORD}){{0,2}})(?!['’]s|[\w-])(?![ ][A-Z\d])")
_BEFORE_AND = re.compile(rf"(?<![\w'’.-])(?P<name>{_WORD}(?:[ ]{_WORD})?)[ ](?:and|&)[ ]\Z")
_TOGETHER_CHARS = 50
_GIVEN, _ENTRY = re.compile(r",[ ][^\W\d_a-z][^\W\d_]{1,20}(?=;|\n|\Z)"), re.compile(r"(?:\A|;[ ]?|\n)\Z")
_PRONOUN = re.compile(r"(?<![^\W_])(?:[Hh]e|[Ss]he|[Hh]is|[Hh]ers?|[Hh]im|himself|herself)(?![^\W_])")
_PRONOUN_WORDS = words_of("he she his her hers him himself herself")
_SOMEBODY_ELSE = re.compile(
    r"(?<![^\W_])(?:(?i:(?:step|grand|god)?(?:mother|father|son|daughter|child|brother|sister|parent)s?|mum|mom|dad|wife|"
    r"husband|uncle|aunt|cousin|nephew|niece|grandma|grandpa|gran|nan|man|woman|boy|girl|friend|colleague|boss|neighbou?r|"
    r"teacher|doctor|patient|someone|somebody|nobody|everyone|everybody|anyone|person|mr|mrs|ms|dr|whoever)|baby|guy|lady|"
    r"gentleman|doc|nurse|midwife|lawyer|landlord|officer|driver|student|pupil|coach|actor|actress|singer|player|author|"
    r"minister|president|king|queen|prince|princess|owner|manager|captain|kid|widow|widower|client|customer|worker|"
    r"reporter|candidate|mayor|judge|professor|artist|writer|one|dog|cat|ship|winner|user|buyer|seller)(?:['’]s)?(?![^\W_])"
)
"""Before a pronoun, which may stand for them."""
_OWN_VERBS = (
    rf"(?:{PERSON_VERBS}|lost|broke|found|finished|brought|took|left|kept|sold|bought|parked|washed|ate|closed|opened|"
    r"raised|shook|packed|quit|renewed|hurt|injured|missed|misses|celebrated|read|passed|failed|spilled|spilt|"
    r"dropped|locked|cut|rode|walks|fed|feeds|thanked|kissed|hugged|moved|owes|gave|gives|sent|made|cleaned|"
    r"borrowed|lent|hid|turned|complained[ ]about|said[ ]that|says[ ]that|wrote[ ]that)"
)
"""What things do not do with what is his or hers."""
_ACTS = (
    rf"(?:['’]s[ ][a-z]|[ ](?:was|is|has|had|will|would|can|could|does|did|went|came|got|gets|sat|stood|ran|plays|"
    rf"lives|"
    rf"works|wants|needs|never|always|just|still|also|[a-z]{{2,12}}ed|{_OWN_VERBS})(?![^\W_]))"
)
_ACT = re.compile(_ACTS)
_ANTECEDENT = re.compile(rf"(?<![\w'’.-])(?P<name>{_WORD}(?:[ ]{_WORD})?)(?![\w-])(?![ ][A-Z\d(])(?P<acts>{_ACTS})?")
_OWN = re.compile(rf"[ ]{_OWN_VERBS}[ ]")
_ONE_VERB = re.compile(r"[ ][a-z]+(?:[ ](?:about|that|on|off|up))?[ ]")
_SENTENCE = re.compile(r"[.!?][”\"’')]?\s+")
_FIRST = re.compile(r"(?:\A|[.!?:]|[\n\"“(>-])[ \t\"“(]*\Z")
_ASKS = re.compile(r"(?:\A|[.!?:\n]|[\"“])[ ]?(?:Has|Is|Did|Does|Was|Will|Can|Could|Should|Would|Had)[ ]\Z")
_NOT_BEFORE = re.compile(
    r"(?<![^\W_])(?:in|at|near|on|via|since|through|the|a|an|this|that|these|those|new|old|into|by|of|take|takes|taking|took|"
    r"start|starts|started|starting|stop|stopped|giv(?:e|en|ing|es)|gave|prescribed|try|tried|use|uses|used|using|buy|buys|"
    r"bought|sell|sold|drive|drives|drove|eat|eats|ate|drank|drinks|watch|watched|read|reads|speak|speaks|learn|learns|"
    r"studies|studied|wears|wore|plays|love|loved|loves|like|likes|hates|hated|visit|visited|left|reached)[ ]\Z",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"[,.;:!?)]|[ ](?:and|or|to|for|in|on|at|about|from|with|whether|if|that|when|because|while|but|who|as|"
    r"again|yesterday|today)(?![^\W_])|['’]s[ ][a-z]"
)
_TO_PLACE = re.compile(r"(?<![^\W_])(?:to|from)[ ]\Z")
_MAX_DISTANCE = 160
_NO_SUBJECTS = words_of(
    "christmas easter ramadan covid internet google facebook twitter wifi english french german spanish italian "
    "chinese "
    "japanese russian latin greek arabic hindi bible quran god windows android excel word amazon netflix youtube uber "
    "after before during until although though since because once last next every each another most such only even "
    "please thank thanks yes no not never always maybe perhaps why what which whose whom that later soon however "
    "according despite unlike like again meanwhile instead still also well hello hi hey dear sorry poor could can "
    "would "
    "will should did does do is are was were has have had may might must let ask tell call give send remind nobody "
    "there here today yesterday tomorrow tonight then when while where whenever as at by for from in into of on to "
    "up with"
)


def further_names(clues: Clues, persons: Sequence[LabeledSpan]) -> Iterator[LabeledSpan]:
    """The names in a text. persons: those that were found. In linear time."""
    yield from _parts(clues.text, persons)
    yield from _families(clues.text, persons)
    yield from _named_together(clues.text, persons)
    if ";" in clues.text:
        yield from _with_given_names(clues.text, persons)
    if clues.has_word(_PRONOUN_WORDS) and not MEDICAL.search(clues.text):
        yield from _antecedents(clues.text, persons)


def _parts(text: str, persons: Sequence[LabeledSpan]) -> Iterator[LabeledSpan]:
    """Words of full names, elsewhere in the text."""
    names = [text[span.start : span.end] for span in persons]
    parts = [[word for word in _PART.findall(name) if _is_part(word)] for name in names if " " in name]
    given, last = {word for part in parts for word in part[:-1]}, {part[-1] for part in parts if part}
    if not given and not last:
        return
    covered = merged(persons)
    for match in _PART.finditer(text):
        word = match[0]
        if (word not in given and word not in last) or _is_inside(match.start(), covered):
            continue
        before = text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
        is_word = word.lower() in WORD_NAMES or word.lower() in NO_SURNAMES
        is_place = (is_word or word not in last) and _PLACE.search(before)
        if not (
            is_place
            or _THING.search(before)
            or (is_word and _FIRST.search(before))
            or text.startswith("-", match.end())
        ):
            yield _person(match.start(), match.end())


def _families(text: str, persons: Sequence[LabeledSpan]) -> Iterator[LabeledSpan]:
    """The plurals of surnames: the Parkers, where Mr Parker is found."""
    surnames = {text[span.start : span.end].rpartition(" ")[2] for span in persons}
    for match in _FAMILY.finditer(text):
        if match["surname"] in surnames:
            yield _person(*match.span("name"))


def _is_part(word: str) -> bool:
    """Whether a word of a name may stand for its bearer."""
    return word[:1].isupper() and not word.isupper() and word.lower() not in NO_GIVEN_NAMES and not has_role(word)


def _is_inside(start: int, spans: Sequence[LabeledSpan]) -> bool:
    """Whether a character is inside one of spans, which are in order and do not overlap."""
    index = bisect_right(spans, start, key=attrgetter("start"))
    return index > 0 and start < spans[index - 1].end


def _named_together(text: str, persons: Sequence[LabeledSpan]) -> Iterator[LabeledSpan]:
    """The names that "and" joins to a person, on either side."""
    for span in persons:
        begin = max(0, span.start - _TOGETHER_CHARS)
        for match in (_TOGETHER.match(text, span.end), _BEFORE_AND.search(text, begin, span.start)):
            if match is None:
                continue
            start, end = match.span("name")
            start += chars_before_name(text[start:end], _NO_SUBJECTS)
            first = text[start:end].split(" ", maxsplit=1)[0].lower()
            if not (first in NO_GIVEN_NAMES or first in _NO_SUBJECTS or has_role(text[start:end])):
                yield _person(start, end)


def _with_given_names(text: str, persons: Sequence[LabeledSpan]) -> Iterator[LabeledSpan]:
    """Persons of a list such as "Ng, Ada; Ek, Bo", with the names behind their commas."""
    for span in persons:
        match = _GIVEN.match(text, span.end)
        if match and _ENTRY.search(text, max(0, span.start - 2), span.start):
            yield _person(span.start, match.end())


def _antecedents(text: str, persons: Sequence[LabeledSpan]) -> Iterator[LabeledSpan]:
    """Of each pronoun, the nearest name before it, if nobody else may be meant."""
    starts = sorted(span.start for span in persons)
    end = -_MAX_DISTANCE
    for match in _PRONOUN.finditer(text):
        begin = max(0, match.start() - _MAX_DISTANCE)
        begin = max(begin, text.rfind("\n", begin, match.start()) + 1)
        last, end = end, match.end()
        first = bisect_left(starts, begin)
        if (
            last > begin
            or (first < len(starts) and starts[first] < match.start())
            or _SOMEBODY_ELSE.search(text, begin, match.start())
        ):
            continue
        sentences = [begin, *(found.end() for found in _SENTENCE.finditer(text, begin, match.start()))]
        found = _nearest(text, sentences[-2:][0], match)
        if found:
            yield found


def _nearest(text: str, begin: int, pronoun: re.Match[str]) -> LabeledSpan | None:
    """The last name in text[begin:] before a pronoun that it can stand for."""
    chosen, is_subject = None, pronoun[0].lower() in ("he", "she")
    for match in _ANTECEDENT.finditer(text, begin, pronoun.start()):
        start, end = match.span("name")
        start += chars_before_name(text[start:end], _NO_SUBJECTS)
        before = text[max(0, start - _BEFORE_CHARS) : start]
        name = text[start:end]
        if (first := name.split(" ")[0].lower()) in NO_GIVEN_NAMES or first in _NO_SUBJECTS or has_role(name):
            continue
        between = text[end : pronoun.start()]
        if not is_subject and _ONE_VERB.fullmatch(between) and not _OWN.fullmatch(between):
            continue
        is_first = _FIRST.search(before) is not None
        if match["acts"] if is_first else _ASKS.search(before) or _is_object(text, before, end):
            chosen = _person(start, end)
    return chosen


def _is_object(text: str, before: str, end: int) -> bool:
    if _NOT_BEFORE.search(before):
        return False
    if _TO_PLACE.search(before):
        return text[end : end + 1] in {",", ";", ":"}
    return _GOES_ON.match(text, end) is not None or _ACT.match(text, end) is not None


def _person(start: int, end: int) -> LabeledSpan:
    return LabeledSpan(start, end, "person", by_recognizer=True, score=_SCORE)

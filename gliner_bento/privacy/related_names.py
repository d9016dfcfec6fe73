"""Names of persons who are related to somebody in an English text, such as "my sister Willow" and "Dallas's nephew",
or do what only persons do, such as "Phoenix, who lives". Models take a single word that is also a place, a plant or a
brand for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gliner_bento.privacy.name_words import words_of
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.55
_KIN = (
    r"(?:(?:step|grand)?(?:mother|father|son|daughter|child)|(?:step)?(?:brother|sister)|mum|mom|dad|wife|husband|uncle|"
    r"aunt|cousin|nephew|niece|grandma|grandpa|girlfriend|boyfriend|fianc[ée]e?|twin|ex-(?:wife|husband))(?:-in-law)?"
)
_ROLES = (
    r"(?:friend|colleague|co-?worker|boss|neighbou?r|room-?mate|flat-?mate|teacher|tutor|coach|nurse|midwife|dentist|"
    r"therapist|lawyer|landlord|landlady|driver|babysitter|nanny|carer|assistant|patient|client|student|pupil|partner)"
)
_RELATED = rf"(?:[a-z]{{2,12}}(?:['’]s)?[ ]){{0,2}}(?:{_KIN}|{_ROLES})"
_WORD = r"[A-Z][a-zß-öø-ÿ]{1,20}(?:['’-][A-Z][a-zß-öø-ÿ]{1,20})?"
_WORDS = rf"{_WORD}(?:[ ]{_WORD}){{0,2}}(?![\w-])"
_BEHIND_RELATION = re.compile(
    rf"(?:(?<![^\W_])(?:[Mm]y|[Hh]is|[Hh]er|[Oo]ur|[Yy]our|[Tt]heir)|[a-z]['’]s)[ ]{_RELATED}"
    rf"(?:[ ](?:(?:is[ ])?called[ ]|named[ ])?(?P<name>{_WORDS})(?![ ]?[\d(])"
    rf"|,[ ](?P<between>{_WORDS})(?=[,.;:!?)]|\Z))"
    rf"|(?<![^\W_])(?:texted|phoned|hugged|kissed|married|divorced)[ ](?P<object>{_WORDS})"
)
"""The second name is between two commas, the third behind what is only done to persons."""
_BEFORE_RELATION = re.compile(
    rf"(?<![\w'’-])(?P<name>{_WORD})"
    rf"(?=['’]s[ ](?:[a-z]{{2,12}}[ ]){{0,2}}{_KIN}(?![^\W_])(?![ ](?:city|company|school))"
    rf"|(?P<acts>,[ ](?:my|his|her|our|your|their|an?)[ ]{_RELATED}(?:[ ]of[ ][^,.;]{{1,30}})?[,.;:!?]"
    rf"|[ ](?:and|or)[ ](?:his|her)[ ]{_RELATED}(?![^\W_])"
    r"|[ ](?:him|her)self(?![^\W_])"
    r"|,[ ]who[ ](?:lives|lived|was born|grew up|married|studies|studied|teaches|is \d)"
    r"|[ ](?:said|says|told (?:me|us|him|her|them)|thinks|thought|knows|knew|believes|hopes|claims)[ ](?:that[ ])?s?he"
    r"(?![^\W_])"
    r"|[ ](?:texted|whispered|smiled|laughed|nodded|shrugged|hugged|kissed|blushed|sneezed|yawned|giggled|sobbed|"
    r"fell asleep|woke up|gets up|got up|told (?:me|him|her)|owes me|wore|wears)(?![^\W_])))"
)
_NO_NAMES = words_of(
    "he she they we you it who everyone everybody everything someone somebody anyone nobody mum mom mummy dad daddy "
    "mother father grandma grandpa granny brother sister doctor people god lord santa today yesterday tomorrow then "
    "now monday tuesday wednesday thursday friday saturday sunday january february march july september october "
    "november december english french german spanish italian chinese the this that these those here there what when "
    "where why how if but and or so as at in on to from with for of by not no yes all both each other another one two "
    "three some many mr mrs ms miss dr prof professor sir"
)
_GIVES = re.compile(
    r"(?<![^\W_])(?:gives?|gave|given|giving|teach(?:es)?|taught|teaching|buy|bought|feeds?|fed|show(?:ed)?)[ ]\Z"
)
"""What is behind the person then is a thing: "gave my son Calpol"."""
_PLACES = re.compile(r"(?<![^\W_])(?:in|at|from|near|to|of|on|by|since|the|through|via)[ ]\Z", re.IGNORECASE)
_BEFORE_CHARS = 12


def related_names(clues: Clues) -> Iterator[LabeledSpan]:
    """The names in a text; spans may overlap. In linear time."""
    for pattern in (_BEHIND_RELATION, _BEFORE_RELATION):
        for match in pattern.finditer(clues.text):
            before = clues.text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
            is_thing = (
                _GIVES.search(before) if pattern is _BEHIND_RELATION else match["acts"] and _PLACES.search(before)
            )
            group = match.lastgroup if pattern is _BEHIND_RELATION and match.lastgroup else "name"
            if not is_thing and match[group].split(" ")[0].lower() not in _NO_NAMES:
                yield LabeledSpan(*match.span(group), "person", by_recognizer=True, score=_SCORE)

"""Names of persons who are related to somebody in an English text, such as "my sister Willow" and "Dallas's nephew",
or do what only persons do, such as "Phoenix, who lives". Models take a single word that is also a place, a plant or a
brand for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gliner_bento.privacy.name_words import NO_GIVEN_NAMES, has_role, words_of
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.55
_KIN = (
    r"(?:(?:step|grand|god|foster[ -])?(?:mother|father|son|daughter|child)|(?:step|god|grand)parent|sibling|"
    r"(?:step|half-|foster[ -])?(?:brother|sister)|mum|mummy|mom|mommy|dad|daddy|wife|husband|spouse|widow(?:er)?|"
    r"bride|uncle|aunt|auntie|great-(?:uncle|aunt)|cousin|nephew|niece|grandma|granny|gran|grandpa|grandad|granddad|baby|"
    r"toddler|little one|eldest|youngest|boy|girl|girlfriend|boyfriend|fianc[ée]e?|twin|triplet|"
    r"ex-(?:wife|husband|girlfriend|boyfriend|partner))(?:-in-law)?"
)
_ROLES = (
    r"(?:friend|colleague|co-?worker|boss|neighbou?r|room-?mate|flat-?mate|teacher|tutor|coach|nurse|midwife|dentist|"
    r"therapist|lawyer|landlord|landlady|driver|babysitter|nanny|carer|assistant|patient|client|student|pupil|partner|"
    r"intern|analyst|manager|receptionist|secretary|pharmacist|interpreter|social worker|physio|consultant|surgeon|"
    r"trainer|plumber|electrician|gardener|cleaner|caretaker|classmate|team-?mate)"
)
_CARERS = (
    r"(?:midwife|pharmacist|receptionist|interpreter|carer|caregiver|physio|paramedic|nanny|babysitter|secretary|nurse|"
    r"registrar|surgeon|dentist|therapist|counsell?or|matron|porter|social worker)"
)
"""Who has a name behind such a word in notes, without "my" or "the"."""
_RELATIVES = (
    r"(?:wife|husband|(?:step|grand|god)?(?:mother|father|daughter|son)|(?:step)?(?:brother|sister)|mum|mom|dad|aunt|"
    r"uncle|cousin|nephew|niece|partner|spouse|fianc[ée]e?|girlfriend|boyfriend)"
)
_KIN_WORDS = words_of(
    "mother father son daughter child brother sister stepmother stepfather stepson stepdaughter stepchild stepparent "
    "stepbrother stepsister grandmother grandfather grandson granddaughter grandchild grandparent godmother godfather "
    "godson goddaughter godchild godparent sibling mum mummy mom mommy dad daddy wife husband spouse widow widower "
    "bride uncle aunt auntie cousin nephew niece grandma granny gran grandpa grandad granddad baby toddler little "
    "eldest youngest boy girl girlfriend boyfriend fiance fiancee twin triplet"
)
_ROLE_WORDS = words_of(
    "friend colleague coworker worker boss neighbour neighbor roommate mate flatmate teacher tutor coach nurse midwife "
    "dentist therapist lawyer landlord landlady driver babysitter nanny carer assistant patient client student pupil "
    "partner intern analyst manager receptionist secretary pharmacist interpreter social physio consultant surgeon "
    "trainer plumber electrician gardener cleaner caretaker classmate teammate "
    "caregiver paramedic registrar counsellor counselor matron porter"
)
_OBJECT_VERBS = words_of("texted phoned hugged kissed married divorced")
_RELATION_WORDS = _KIN_WORDS | _ROLE_WORDS | _OBJECT_VERBS
"""In each match of `_BEHIND_RELATION` that is ASCII, one of these is a word."""
_RELATED = rf"(?:[a-z]{{2,12}}(?:['’]s)?[ ]){{0,2}}(?:{_KIN}|{_ROLES})"
_WORD = r"[A-Z][a-zß-öø-ÿ]{1,20}(?:['’-][A-Z][a-zß-öø-ÿ]{1,20})?"
_WORDS = rf"(?:[A-Z]\.[ ]?){{0,2}}{_WORD}(?:[ ]{_WORD}){{0,2}}(?![\w-])"
_BEHIND_RELATION = re.compile(
    rf"(?:(?<![^\W_])(?:[Mm]y|[Hh]is|[Hh]er|[Oo]ur|[Yy]our|[Tt]heir)|[a-z]['’]s)[ ]{_RELATED}"
    rf"(?:[ ](?:(?:is[ ])?called[ ]|named[ ])?(?P<name>{_WORDS})(?![ ]?[\d(])"
    rf"|,[ ](?P<between>{_WORDS})(?=[,.;:!?)]|\Z))"
    rf"|(?<![^\W_])(?:[Tt]he|[Aa]n?)[ ]{_RELATED}(?:,[ ](?P<apposed>{_WORDS})(?=,)|[ ]\((?P<bracketed>{_WORDS})\))"
    rf"|(?<![^\W_])(?i:{_KIN}|{_ROLES})[ ]\((?P<in_brackets>{_WORDS})\)"
    rf"|(?<![\w'’-])(?:{_RELATIVES}|{_CARERS})[ ](?P<bare>{_WORDS})(?![ ]?[\d(])"
    rf"|(?:\A|[.;:!?\n(][ ]?)(?i:{_RELATIVES})[ ](?P<first>{_WORDS})(?![ ]?[\d(])"
    rf"|(?<![^\W_])(?:texted|phoned|hugged|kissed|married|divorced)[ ](?P<object>{_WORDS})"
)
"""A name is behind the word, between two commas or in brackets; `object` is behind what is only done to persons."""
_BEFORE_RELATION = re.compile(
    rf"(?<![\w'’-])(?P<name>{_WORD}(?:[ ]{_WORD})?)"
    rf"(?=['’]s[ ](?:[a-z]{{2,12}}[ ]){{0,2}}{_KIN}(?![^\W_])(?![ ](?:city|company|school))"
    rf"|(?P<acts>,[ ](?:my|his|her|our|your|their|an?|the)[ ]{_RELATED}(?:[ ]of[ ][^,.;]{{1,30}})?[,.;:!?]"
    rf"|[ ](?:and|or)[ ](?:his|her)[ ]{_RELATED}(?![^\W_])"
    r"|[ ](?:him|her)self(?![^\W_])"
    r"|,[ ]who[ ](?:lives|lived|was born|grew up|married|studies|studied|teaches|is \d)"
    r"|[ ](?:said|says|told (?:me|us|him|her|them)|thinks|thought|knows|knew|believes|hopes|claims)[ ](?:that[ ])?s?he"
    r"(?![^\W_])"
    r"|[ ](?:texted|whispered|smiled|laughed|nodded|shrugged|hugged|kissed|blushed|sneezed|yawned|giggled|sobbed|"
    r"fell asleep|woke up|gets up|got up|told (?:me|him|her)|owes me|wore|wears|apologi[sz]ed|phoned|forgot|"
    r"testified|graduated|resigned|confessed|sighed|grinned|wept|snored|limped|volunteered|mumbled|frowned|"
    r"(?:was|is|has been) (?:(?:just|now|recently) )?(?:named employee|hired|fired|laid off|arrested|married|widowed|"
    r"divorced|"
    r"diagnosed|hospitali[sz]ed|allergic|engaged to|off sick|on maternity leave)|is (?:my|our|his|her|"
    r"their) (?:emergency contact|next of kin|"
    rf"{_KIN}|{_ROLES})|"
    r"turned (?:[2-9]|"
    r"[1-9]\d|one|two|three|four|five|six|seven|eight|nine|ten|eighteen|thirty|forty|fifty|sixty)|"
    r"is (?:[a-z]+ ){0,3}pregnant|babysits|was (?:the|my|his|her) (?:best man|bride|groom|bridesmaid|godmother|"
    r"godfather)|"
    r"owed (?:me|him|her)|has (?:two|three|four|five) (?:children|kids|sons|daughters|brothers|sisters))(?![^\W_])))"
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
        if pattern is _BEHIND_RELATION and not clues.has_word(_RELATION_WORDS):
            continue
        for match in pattern.finditer(clues.text):
            before = clues.text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
            is_thing = (
                _GIVES.search(before) if pattern is _BEHIND_RELATION else match["acts"] and _PLACES.search(before)
            )
            group = match.lastgroup if pattern is _BEHIND_RELATION and match.lastgroup else "name"
            if not (is_thing or match[group].split(" ")[0].lower() in NO_GIVEN_NAMES or has_role(match[group])):
                yield LabeledSpan(*match.span(group), "person", by_recognizer=True, score=_SCORE)

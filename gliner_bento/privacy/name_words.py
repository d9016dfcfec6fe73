"""Words that say whether other words are a name: parts of names, what is no name, and names that are also words."""

from __future__ import annotations

import re
from collections.abc import Set

WORD = r"[^\W\d_][^\s\"“”<>,;:：=*|/(){}\[\]!?。、，；।]{0,40}"
"""One word of a name."""
WORD_START = r"(?<![^\W_])(?=[^\W_])"
"""Before a choice of many words: it is tried only where a word begins."""
PARTICLE = r"(?:van|von|der|den|de|da|di|do|dos|del|della|la|le|bin|ibn|al|el|zu|ter|ten|y|e|mac|ní|d['’].*)"
_PARTICLES = re.compile(PARTICLE, re.IGNORECASE)
_SUFFIXES = re.compile(r"['’]s$")


def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_NO_PERSONS = words_of(
    "account accounts accounting admin administration administrator agency agreement all and applicant application "
    "association attached attendees authority bank board branch building business buyer center centre certificate "
    "claim claims clerk client clients clinic colleague colleagues committee company contact corp corporation council "
    "customer customers data date default department departments dept desk director division draft driver email "
    "employee employees employer everybody everyone facility faculty family fax files first foundation friend friends "
    "fund general gmbh group guest guests guys head headquarters hello helpdesk hiring home hospital hotel house "
    "human inc info information institute insurance internal international invoice it ladies last library limited "
    "list llc ltd madam mail main management manager manufacturer market marketing member members ministry mobile "
    "module museum name n/a national neighbor neighbors neighbour neighbours neighborhood new none no not note notes "
    "number office officer online operations order organization owner parent parents partner parties party patient "
    "patients payment payroll phone physician place plc please police position president private product products "
    "project public purchase purchasing reader recruiter recruitment registrar registration relations reservation "
    "reservations residents resources root sales school secretary see sender service services shareholders shop "
    "signature sir sirs specialist staff standard state status store street student students subject subscriber "
    "supervisor supplier support system tbd teacher teachers team teams technical tenant tenants test the there title "
    "to type union unit university unknown unspecified user users various vendor visitors volunteers warehouse "
    "website welcome world yes you your damen herren kollegen kunden messieurs mesdames señores clientes tutti tous"
)
"""In small letters, words that no name of a person has, but names of offices, firms, headings and the like."""

TITLES = (
    r"(?:mrs?|ms|mx|miss|dr|prof|professor|sir|dame|rev|reverend|sgt|sergeant|capt|captain|officer|nurse|coach|judge|"
    r"detective|uncle|aunt|auntie|herr|herrn|frau|monsieur|madame|mme|mlle|señora?|sra|srta|signora?|sig\.ra|dott|"
    r"dhr|mevr|mevrouw|meneer|pan|pani|senhora?|dottor(?:e|essa)?|dott\.ssa|docteure?|doctora|doutora?|doktor)"
)


def is_capitalised(word: str) -> bool:
    """Whether a word begins with a capital, or is of a script without case."""
    return word[:1].isupper() or word[:1].lower() == word[:1].upper()


def is_particle(word: str) -> bool:
    """Whether a word is a small one within names, such as `van`."""
    return _PARTICLES.fullmatch(word) is not None


def is_full_name(name: str, *, min_words: int = 2) -> bool:
    """Whether a text looks like the name of a person: a few words with capitals, none of them one of an office."""
    words = [_SUFFIXES.sub("", word) for word in name.split()]
    return (
        min_words <= len(words) <= 6
        and all(is_capitalised(word) or is_particle(word) for word in words)
        and not any(char.isdigit() for char in name)
        and not any(word.strip(".,").lower() in _NO_PERSONS for word in words)
    )


def has_role(name: str) -> bool:
    """Whether a text has a word of an office, a firm or a form, which no name of a person has."""
    return any(_SUFFIXES.sub("", word.strip(".,()")).lower() in _NO_PERSONS for word in name.split())


PERSON_VERBS = (
    "said|says|asked|asks|told|tells|thinks|thought|wants|wanted|loves|loved|hates|hated|likes|liked|writes|"
    "wrote|speaks|spoke|sings|sang|drove|drives|texted|emailed|phoned|called|calls|smiled|laughed|nodded|"
    "shrugged|replied|answered|whispered|shouted|married|met|wore|wears|studies|studied|graduated|knows|knew|"
    "remembers|remembered|forgot|believes|hopes|wishes|cooked|invited|visited|walked|paints|painted|teaches|"
    "taught"
)
"""What mostly persons do."""

WORD_NAMES = words_of(
    "amber angel angus april art ash aspen august aurora autumn barb basil baker baron bay bear bill bishop bliss bob "
    "brandy brook brooks bud buck candy carol cash chance charity chase chuck christian clay cliff clover colt "
    "constance cook cooper coral crystal curt daisy dale dash dawn dean destiny dick dolly don dot drew duke earl "
    "earnest eden ember ernest fable faith fern fisher flint flora forest forrest frank gale gay gene genesis ginger "
    "glen glory grace grant guy hank happy harmony harper haven hazel heath heather heaven herb holly honey hope "
    "hunter iris ivy jack jade jasmine jasper jay jean jewel jolly josh joy june juniper justice karat kit lane lark "
    "laurel lavender liberty lily link lotus lucky magnolia marina mark mason matt max may melody mercy merit miles "
    "mike misty myrtle nick noble nova olive opal orchid patience pat pearl penny peg pepper pierce pine pip poppy "
    "porter precious price prudence rain raven ray reed rich rick river rob robin rocky rod rose rosemary rowan ruby "
    "rusty sage sally sandy savannah scarlet serenity shepherd sienna skip sky skipper sonny spencer star sterling "
    "stone storm sue summer sunny tanner taylor temple terry tiger trinity trip tucker tulip unity valor verity "
    "victor victory vera violet walker ward warren wade whisper wilder will willow win winter wolf woody wren zen"
)
"""Given names that are also words, in small letters: without a capital, they are the word."""

NO_SURNAMES = words_of(
    "street avenue road lane bank banks day days county alert river valley park beach university college school inc "
    "ltd group island islands lake mountain mountains bay city town village church hospital hall house bridge station "
    "airport center centre court garden gardens festival games olympics museum theatre theater club league cup team "
    "party season edition collection awards award show movie film album song book act bill law office services "
    "service company january february march april may june july august september october november december monday "
    "tuesday wednesday thursday friday saturday sunday one two the a an and or of in on at for with to is are was "
    "were not no it he she we they you i his her this that these those there oil tea wine cheese sauce bread salad "
    "basel deco nouveau rock music age period fools ridge hill hills point harbor harbour square room rooms wall "
    "floor by from as if when while but tower suite tunnel building mill mount canyon coast sea ocean desert forest "
    "county district province republic kingdom empire airlines railway line train express news times post journal"
)
"""Words, in small letters, that follow a word with a capital in names of places, firms, events and times."""

NO_GIVEN_NAMES = words_of(
    "he she they we you it who everyone everybody everything someone somebody anyone nobody mum mom mummy dad daddy "
    "mother father grandma grandpa granny brother sister doctor people god lord santa today yesterday tomorrow then "
    "now monday tuesday wednesday thursday friday saturday sunday january february march july september october "
    "november december english french german spanish italian chinese the this that these those here there what when "
    "where why how if but and or so as at in on to from with for of by not no yes all both each other another one two "
    "i i'm i’m i've i’ve i'd i’d i'll i’ll my our is are was do does did could would should please thanks just let "
    "three some many mr mrs ms miss dr prof professor sir christmas nature earth act superior tongue"
)
"""Words, in small letters, that are no name of a person though they have a capital where a sentence begins."""

MEDICAL = re.compile(
    r"\d ?(?:mg|mcg|ml|mL|g|units|mmol|%)(?![^\W_])|(?<![^\W_])(?:dos(?:e|ed|es|age)|tablets?|patients?|[Pp]t|drug|"
    r"medicines?|"
    r"medication|INR|BP|HR|symptoms?|rash|fever|pain|dizzy|nausea|hypos?|treatment|therapy|diagnos\w+|insulin|"
    r"[Mm]eds|doctor|chemo\w*|scan|surgery|eGFR|HbA1c|CT|MRI|ECG|pharmacist|prescri\w+|side effects?|periods|"
    r"bd|tds|qds|bid|tid|nocte|"
    r"(?:Na|K|Cr|CRP|TSH|WBC|WCC|H[bg]b?|Plt|CK|GCS|SpO2|EF|PSA|ALT|AST|ESR|BNP|Trop)(?=[ ]\d))"
    r"(?![^\W_])"
)
"""In a text with one of these, a word with a capital may be a drug or a disease."""


def chars_before_name(words: str, others: Set[str] = frozenset()) -> int:
    """The number of characters in front of a name: of its first word, if another one follows and it is one of
    `NO_GIVEN_NAMES` or of others, as in "Then Ada"."""
    first, blank, _ = words.partition(" ")
    return len(first) + 1 if blank and (first.lower() in NO_GIVEN_NAMES or first.lower() in others) else 0

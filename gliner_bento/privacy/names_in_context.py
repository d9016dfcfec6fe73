"""Names in English texts that only what is around them shows: "said Sage", "reviewed by Moss", "Femi here",
"tell Banner that". Models know few of these words as names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gliner_bento.privacy.name_words import MEDICAL, NO_GIVEN_NAMES, chars_before_name, has_role, words_of
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.55
_WORD = r"[A-Z][a-zà-ÿ]{1,20}(?:['’-][A-Z][a-zà-ÿ]{1,20})?"
_NAME = rf"(?P<name>(?:[A-Z]\.[ ]?){{0,2}}{_WORD}(?:[ ]{_WORD}){{0,2}})(?![\w-])"
_ENDS = r"(?=['’]s(?![^\W_])|[,.;:!?)”\"]|\Z|\n)"
_SPEECH = r"(?:says|said|asks|asked|replied|answered|whispered|shouted|cried|laughed|added|explained|joked|wrote)"
_QUOTING = re.compile(
    rf"[”\"’'!?,][ ]{_SPEECH}[ ]{_NAME}(?=[,.;:!?]|\Z|\n|[ ](?:and|as|when|while|with|who)(?![^\W_]))"
)
_TOLD = re.compile(
    r"(?<![^\W_])(?:[Tt]ell|told|[Aa]sk|asked|[Rr]emind|reminded|thanked|invited|emailed|hired|fired|promoted|interviewed|"
    rf"congratulated|introduced|babysat|adopted)[ ]{_NAME}"
    r"(?=['’]s(?![^\W_])|[,.;:!?]|\Z|[ ](?:to|that|whether|if|about|for|when|why|how|what|again|not|and)(?![^\W_]))"
)
_DONE_BY = re.compile(
    r"(?<![^\W_])(?:(?i:seen|reviewed|dictated|typed|consented|counsel+ed|signed|accepted|referred|examined|assessed|"
    r"escorted|accompanied|requested|reported|interviewed|discussed|approved|checked|witnessed|treated)(?:[ ](?:off|"
    r"in|up|"
    rf"today))?[ ](?:by|with)|(?i:spoke|speak|talked|spoken)[ ](?:to|with)|(?:d/w|DW))"
    rf"[ ](?:[A-Za-z]{{2,14}}[ ]\()?{_NAME}"
)
_PAIR = re.compile(
    r"(?<![^\W_])(?:twins|triplets|sisters|brothers|children|kids|sons|daughters|parents|cousins|friends|colleagues|"
    rf"neighbou?rs|grandchildren)(?:,|:)?[ ](?:{_WORD},[ ]){{0,3}}{_NAME}(?=,?[ ](?:and|&)[ ][A-Z])"
)
_THANKS = re.compile(
    r"(?<![^\W_])(?:[Tt]hank(?:s|[ ]you)(?:,[ ]|[ ]to[ ]|[ ])|(?:[Hh]appy[ ]birthday|[Cc]ongrat(?:ulation)?s|"
    rf"[Gg]ood[ ]luck|[Gg]et[ ]well[ ]soon|[Ww]elcome[ ]back),?[ ]){_NAME}(?=[,.!]|[ ](?:and|for)(?![^\W_]))"
)
_COUPLE = re.compile(
    rf"(?<![\w'’-])(?P<name>{_WORD})(?=[ ](?:and|&)[ ]{_WORD}[ ](?:share[ ]an?|are[ ](?:twins|siblings|"
    rf"sisters|"
    r"brothers|friends|married|dating|engaged|colleagues|cousins|neighbou?rs)|got[ ](?:married|engaged|divorced)|"
    r"broke[ ]up|"
    r"live[ ]together|eloped)(?![^\W_]))"
)
_HERE = re.compile(rf"(?:\A|[\n,.!?][ ]?){_NAME}[ ]here(?:[ ]again)?(?=[,.;:!-]|\Z|\n|[ ](?:from|again))")
_THIS_IS = re.compile(
    r"(?<![^\W_])(?:(?:I['’]m|I[ ]am|[Tt]his[ ]is)[ ](?P<name>" + _WORD + r"(?:[ ]" + _WORD + r"){0,2})(?![\w-])"
    r"(?=[,.!]|\Z|\n|[ ](?:here|again|from|calling|writing|and[ ]I)(?![^\W_]))"
    r"|[Ii]t['’]s[ ](?P<again>" + _WORD + r")[ ](?:again|here|calling|speaking)(?![^\W_]))"
)
_AGED = re.compile(
    rf"(?<![\w'’-])(?<![A-Z][a-z][ ])(?<![a-z]['’]s[ ]){_NAME},[ ]\d{{1,2}},[ ](?=(?:an?|the|who|was|is|has|had|of|"
    rf"from|"
    r"said|denied|lives|lived|died|works|worked)[ ])"
)
_IDENTIFIED = re.compile(
    rf"(?<![\w'’-])(?P<name>{_WORD},?(?:[ ]{_WORD}){{1,3}})(?:(?:[ ]?[-–—(;,|:][ ]{{0,2}}|[ ]{{1,3}})(?:DOB|"
    r"D\.O\.B|MRN|NH[IS]|"
    rf"Accession|"
    r"[Hh]osp|ID|SSN|CHI|URN|born)(?![^\W_])|,?[ ]\(?\d{1,3}[ ]?(?:[MF]|y/?o|yo|yrs?|years?(?:[ -]old)?)(?![^\W_]))"
)
"""A full name before a number or an age of its bearer."""
_AGE_OR_AMOUNT = re.compile(r"[ ]\d{1,3}[ ][MF]")
"""Behind a name: a man's age only in a medical text, as 30 M may be 30 million, and 75 F a temperature."""
_AROUND = 1000
_BUSINESS_WORDS = words_of(
    "america europe asia pacific africa emea apac latam east revenue revenues growth profit profits income earnings "
    "turnover cost costs expense expenses budget budgets spend spending margin assets liabilities debt capital funding "
    "investment investments users subscribers downloads shares exports imports forecast total average annual quarterly "
    "bond bonds loan loans mortgage warranty lease term"
)
"""In small letters: before an amount of millions or of years."""
_CLINICAL = re.compile(
    r"(?<![^\W_])(?:[Pp]t\.?[ ]|[Bb]ed[ ]\d{1,2}[ ]?[(:]?[ ]?|[Rr]oom[ ]\d{1,3}[ ]?\()"
    rf"(?P<name>{_WORD}(?:,?[ ](?:{_WORD}|[A-Z]\.(?=[ ]))){{0,2}})(?=[,.;:)(]|\Z|\n|['’]s|[ ](?:[a-z\d]|[A-Z]{{2}}))"
    rf"|(?:\A|[.:;\n][ ]?)(?P<room>{_WORD})[ ]\((?:bed|room|ward)[ ]\d"
)
_STATES = words_of(
    "alert awake oriented orientated asleep stable settled comfortable well unwell mobile independent afebrile "
    "denies reports states advised aware keen happy sitting resting admitted discharged transferred transfer seen "
    "reviewed examined empty vacant free closed clean cleaning blocked booked bay side linen rest"
)
"""Words, in small letters, that have a capital behind "Pt" or a bed in notes, and are no name."""
_INITIALS = re.compile(
    r"(?<![^\W_])(?:[Ii]nitials:?[ ](?P<name>[A-Z](?:\.[A-Z]){0,2}\.?)(?![\w])"
    r"|(?P<start>[A-Z]\.[A-Z]\.(?:[A-Z]\.)?)(?=[ ](?:is|was)[ ]an?[ ]\d|,[ ]an?[ ]\d))"
)
_GREETED = re.compile(
    r"(?:\A|\n)[ ]?(?i:hi|hello|hey|hallo|good[ ]\w{3,9})(?:[ ][a-z]{2,9}){0,2}[,!.]?[ ](?:(?:[Ii]['’]?m|i[ ]am|"
    r"this[ ]is|"
    r"its|it['’]s)[ ](?P<name>[a-z]{3,14})(?=,|\.|[ ](?:here|again|from|and[ ]i|i)(?![^\W_])|\Z)"
    r"|(?P<here>[a-z]{3,14})[ ]here(?=[ ]again|[,.!]))"
)
"""Names in small letters, only where a text begins with a greeting."""
_MONTHS = words_of("april may june august sept oct nov dec jan feb")
_BEFORE_HERE = words_of(
    "look come go right over up out down near around live work stop start click press see same only sit stay wait sign "
    "enter tap read find get put even still being back everything anything nothing"
)
_NO_NAMES_IN_SMALL_LETTERS = words_of(
    "sorry sure new sick ill not just afraid unable diabetic pregnant very really still also back from out over right "
    "male female worried scared glad happy fine okay well doing one everyone anyone someone hello there again stuck "
    "lost "
    "me who what that this the and but only alone"
)
_DEPARTMENTS = re.compile(
    r"\w+(?:ology|iatrics|therapy|surgery|iology|services|ics)|ortho\w*|gastro|haem\w*|heme|cardio|neuro|renal|ent|icu|"
    r"ed|surgery|anaesthe\w*|anesthe\w*|physio|dietetics|radiology|derm|psych|ophthal\w*|obs|gynae|paeds|peds|"
    r"palliative|safety|portal|education|advice|reported|denies|microbiology|micro|resus|triage|theatre|maternity|outpatients|god|congress|parliament|reuters|bloomberg|"
    r"google|microsoft|amazon|apple|facebook|alexa|siri|netflix|parents|staff|mum|mom|dad|mother|father|nurses?|doctors?",
    re.IGNORECASE,
)
"""Who also reviews patients or is asked: departments, companies and relatives without names."""
_NATIONALITY = re.compile(
    r"\w+(?:ish|ese)|(?:americ|canadi|austri|austral|itali|indi|russi|brazili|mexic|germ|afric|rom|kore|belgi|egypti|"
    r"irani|asi|europe|christi|iraqi|syri|ukraini|norwegi|hungari|nigeri|kenyi|keny|ghanai|puritani|presbyteri)ans?|french|"
    r"dutch|greek|czech|thai|iraqi|israeli|pakistani|muslim|jewish|hindu|catholic|buddhist|sikh|atheist|vegan|black|white|"
    r"asian|hispanic|latino|latina|rhesus|covid",
    re.IGNORECASE,
)
_NO_FIRST_WORDS = {_HERE: _BEFORE_HERE, _AGED: _MONTHS, _CLINICAL: _STATES}
_PATTERNS = (
    (
        _QUOTING,
        words_of("says said asks asked replied answered whispered shouted cried laughed added explained joked wrote"),
    ),
    (
        _TOLD,
        words_of(
            "tell told ask asked remind reminded thanked invited emailed hired fired promoted interviewed "
            "congratulated "
            "introduced babysat adopted"
        ),
    ),
    (
        _DONE_BY,
        words_of(
            "seen reviewed dictated typed consented counseled counselled signed accepted referred examined assessed "
            "escorted "
            "accompanied requested reported interviewed discussed approved checked witnessed treated spoke speak "
            "talked spoken "
            "dw d"
        ),
    ),
    (_THANKS, words_of("thank thanks birthday congratulations congrats luck well back")),
    (
        _PAIR,
        words_of(
            "twins triplets sisters brothers children kids sons daughters parents cousins friends colleagues "
            "neighbours "
            "neighbors grandchildren"
        ),
    ),
    (_COUPLE, words_of("share are got broke live eloped")),
    (_HERE, words_of("here")),
    (_THIS_IS, words_of("i this it")),
    (_CLINICAL, words_of("pt bed room ward")),
    (_GREETED, words_of("hi hello hey hallo good")),
    (_AGED, words_of("a an the who was is has had of from last said denied lives lived died works worked")),
    (_INITIALS, words_of("initials is was a an")),
    (_IDENTIFIED, None),
)
"""Each with words of which it has one; None: there are too many."""


def names_in_context(clues: Clues) -> Iterator[LabeledSpan]:
    """The names in a text; spans may overlap. In linear time."""
    text = clues.text
    for pattern, words in _PATTERNS:
        if words is not None and not clues.has_word(words):
            continue
        for match in pattern.finditer(text):
            start, end = match.span(match.lastgroup or "name")
            start += chars_before_name(text[start:end])
            if pattern is _IDENTIFIED and _is_amount(match):
                continue
            if _is_name(text[start:end], pattern):
                yield LabeledSpan(start, end, "person", by_recognizer=True, score=_SCORE)


def _is_amount(match: re.Match[str]) -> bool:
    """Whether the number of a match is an amount of a business, no age."""
    if not _BUSINESS_WORDS.isdisjoint(re.split("[ ,]+", match["name"].lower())):
        return True
    around = match.string[max(0, match.start() - _AROUND) : match.end() + _AROUND]
    is_either = _AGE_OR_AMOUNT.fullmatch(match.string, match.end("name"), match.end()) is not None
    return is_either and not MEDICAL.search(around)


def _is_name(name: str, pattern: re.Pattern[str]) -> bool:
    if pattern is _INITIALS:
        return True
    if pattern is _GREETED:
        return not (name in _NO_NAMES_IN_SMALL_LETTERS or name.endswith(("ing", "ed")))
    first = re.split(r"[ ,]", name, maxsplit=1)[0].lower()
    if first in NO_GIVEN_NAMES or has_role(name.replace(",", " ")):
        return False
    if first in _NO_FIRST_WORDS.get(pattern, ()):
        return False
    if pattern is _THIS_IS and _NATIONALITY.fullmatch(first):
        return False
    return _DEPARTMENTS.fullmatch(first) is None

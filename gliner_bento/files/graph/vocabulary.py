"""Words that are not part of a name itself: titles, honours, legal forms, and what labels say about a name.

All words are as `names.folded` returns them, without dots. See docs/decisions/ for why no library has them.
"""

from __future__ import annotations

from typing import Literal


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


Kind = Literal["person", "organization", "team", ""]
"""What may be done with the names of a label. "": only differences of case, accents and signs are ignored."""

_LABEL_WORDS: dict[Kind, str] = {
    "person": """
        people per person actor artist athlete attorney author chairman character ceo coach customer defendant
        director employee executive founder human judge lawyer leader man manager minister patient plaintiff player
        politician president professor researcher scientist singer suspect user victim witness woman writer
        persona personne personen persoon pessoa osoba henkilo kisi 人名 人物 人 사람 персона человек""",
    "organization": """
        agency airline authority bank brand business companies company corp corporation court employer enterprise
        firm foundation government hospital institute institution magazine manufacturer ministry newspaper ngo org
        organisation organization party publisher school startup supplier union university
        vendor bedrijf empresa entreprise firma organisatie organisationen organizacion organizacao organizzazione
        organizacja societe unternehmen yritys azienda 会社 組織 公司 组织 机构 организация компания""",
    "team": "club squad team verein equipe equipo squadra 俱乐部 команда клуб",
    "": "",
}
KIND_OF_WORD: dict[str, Kind] = {word: kind for kind, words in _LABEL_WORDS.items() for word in words.split()}
LABEL_ENDS = frozenset({"name", "names", "s"})
"""The last words of a label that do not say what it names: "person's name"."""

WIFE = _words("mrs madam madame mme frau lady senora signora mevr")
"""Titles of women that often stand before the name of a husband."""
MALE = _words("mr mister sir lord father fr brother herr monsieur m senor signor dhr uncle king prince congressman")
FEMALE = WIFE | _words("ms miss dame sister mlle aunt queen princess empress congresswoman chairwoman")
REIGNING = _words("king queen prince princess pope emperor empress saint sultan tsar emir")
"""Titles before a given name. "Prince Harry" is not "Harry Kane"."""
TITLES = (
    MALE
    | FEMALE
    | REIGNING
    | _words(
        """
        the mx dr doctor prof professor rev reverend hon honourable honorable rabbi imam bishop archbishop cardinal
        pastor sheikh capt captain col colonel gen general lt lieutenant sgt sergeant maj admiral commander inspector
        detective constable officer judge justice president chancellor premier prime vice deputy chief executive
        minister senator sen rep representative governor gov mayor ambassador secretary
        councillor chairman ceo cfo cto coach attorney counsel lawyer engineer dipl ing mag dott dra"""
    )
)
FIRST_NAMES = _words("bishop captain col gen judge justice maj pastor sheikh")
"""Titles that are also first names: "Justice Smith" is not "Will Smith". "Don" is no title at all."""
HONOURS = _words("md phd dphil dds jd llb llm mba msc bsc esq esquire qc kc mp mep obe mbe cbe kbe frs cpa")
GENERATIONS = {"junior": "jr", "jnr": "jr", "senior": "sr", "snr": "sr"} | {
    word: word for word in _words("jr sr i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx")
}
"""What distinguishes people of one name, and its shortest form."""

LEGAL_FORMS = {
    word: forms.split()[0]
    for forms in (
        *("ltd limited", "inc incorporated", "corp corporation", "co company", "cie compagnie", "pty", "pte"),
        *("pvt private", "plc", "llc", "llp", "lp", "dac", "gmbh", "mbh", "ag aktiengesellschaft", "kg", "kgaa", "ohg"),
        *("gbr", "ev", "se", "sa", "sas", "sarl", "sl", "slu", "srl", "spa", "nv", "bv", "ab", "as", "asa", "aps"),
        *("oy", "oyj", "hf", "ehf", "sro", "doo", "dd", "kft", "zrt", "nyrt", "ltda", "lda", "bhd", "sdn", "pt", "tbk"),
        *("kk", "ooo ооо", "oao оао", "ao ао", "pao пао", "zao зао", "uab", "sia", "ou", "group"),
        *("株式会社", "有限公司"),
    )
    for word in forms.split()
}
"""Legal forms of companies, and the shortest form of each."""
CLUB_FORMS = _words("fc afc cf sc ec ac sv fk bk if rc")
LEADING_FORMS = _words("ooo oao ao pao zao pt as uab sia 株式会社")
"""Legal forms that may come first. Those of clubs all may."""
DOTTED_FORMS = frozenset({"spa"})
"""Legal forms that are also words, and need their dots."""
COMPANION_FORMS = frozenset({"co", "cie"})
"""Forms after an "and": "& Co."."""
AND = frozenset({"and", "et", "und", "&"})

JOINING = _words("and of the for de di da do du des del la le der die das und et y e")
"""Words that most acronyms have no letter of."""

"""The canonical form of one name: what it is without case, accents, titles and legal forms. Knows no other name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gliner_bento.files.graph import vocabulary
from gliner_bento.files.graph.vocabulary import Kind
from gliner_bento.mentions import normalized

MAX_CHARS = 200
"""Of longer names only case, accents and signs are looked at."""
_MAX_WORDS = 12

_OTHER_SIGNS = str.maketrans(
    dict.fromkeys("‘’ʼ´`＇", "'") | dict.fromkeys("‐‑‒–—−", "-") | dict.fromkeys('"“”„«»', "") | {"\u00ad": ""}
)
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
_POSSESSIVE = re.compile(r"'s$|(?<=s)'$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?")
_ACRONYM = re.compile(r"[A-Z]{3,6}")

FORM_OF_GENDER = {"m": "mr", "f": "ms", "": ""}
"""What the key of a person's name begins with, so that "Mr Kim Lee" is not "Ms Kim Lee"."""


@dataclass(frozen=True, slots=True)
class Name:
    """What a mention says about what it names.

    key: equal for names that are one node in all documents. words: the name itself, for a person with initials as
    single letters. form: the legal form; of a person, "mr" or "ms" as the titles say, if the key has no other title.
    generation: "jr", "viii". titles: those before the name. steps: what was ignored to make the key, for the reason of
    a merge. acronym: whether the letters may be those of other words. bare: the key without a possessive that may be
    part of the name, as in "McDonald's".
    """

    kind: Kind
    key: str
    words: tuple[str, ...] = ()
    form: str = ""
    generation: str = ""
    titles: tuple[str, ...] = ()
    steps: frozenset[str] = frozenset()
    acronym: bool = False
    bare: str = ""

    @property
    def gender(self) -> str:
        """What the titles say: "m", "f" or ""."""
        return _gender(self.titles)

    @property
    def base(self) -> str:
        """The words as one text."""
        return " ".join(self.words)

    @property
    def formless(self) -> str:
        """The key of the same name without a legal form or gender."""
        return " ".join(filter(None, [*self.words, self.generation]))


@dataclass(slots=True)
class _Parsing:
    """A name while its parts are found. dotted: words as written, with their dots."""

    dotted: list[str]
    steps: set[str]
    titles: list[str] = field(default_factory=list)

    def take(self, at: int) -> str:
        """Remove a word; it is returned without its dots."""
        return _undotted(self.dotted.pop(at))


def kind_of(label: str) -> Kind:
    """What a label names: its last word decides, but for "name" and a plural "s". "patient id" names no patient."""
    words = re.findall(r"[^\W_]+", _without_accents(normalized(label[:MAX_CHARS])))
    while len(words) > 1 and words[-1] in vocabulary.LABEL_ENDS:
        words.pop()
    last = words[-1] if words else ""
    return vocabulary.KIND_OF_WORD.get(last) or vocabulary.KIND_OF_WORD.get(last.removesuffix("s"), "")


def canonical(text: str, kind: Kind) -> Name:
    """The canonical form of a name. Linear in its length."""
    steps = set[str]()
    key = folded(text, steps)
    if (stripped := _POSSESSIVE.sub("", key)) in ("", key):
        return _parsed(text, key, kind, steps)
    steps.add("possessive")
    if kind == "person":  # no person's name ends with it
        return _parsed(text, stripped, kind, steps)
    return replace(_parsed(text, key, kind, steps), bare=_parsed(text, stripped, kind, set()).key)


def _parsed(text: str, key: str, kind: Kind, steps: set[str]) -> Name:
    """The canonical form of the name that was folded to `key`."""
    if kind and len(key) <= MAX_CHARS and 0 < len(words := key.split()) <= _MAX_WORDS:
        acronym = bool(_ACRONYM.fullmatch(unicodedata.normalize("NFKC", text).strip().replace(".", "")))
        parsing = _Parsing(words, steps)
        name = _person(parsing, acronym) if kind == "person" else _organization(parsing, kind, acronym)
        if name.words:
            return name
    return Name(kind, key, steps=frozenset(steps))


def folded(text: str, steps: set[str]) -> str:
    """The name without case, accents and kinds of signs. steps: receives what was ignored besides case."""
    name = normalized(text)
    plain = _without_accents(name)
    if plain != name:
        steps.add("accents")
    return " ".join(plain.translate(_OTHER_SIGNS).strip(",;: ").split()) or plain


def _without_accents(text: str) -> str:
    """The text without accents on Latin and Greek letters: in other scripts, marks make other letters."""
    if text.isascii():
        return text
    kept, on_letter = [], False
    for char in unicodedata.normalize("NFD", text):
        if not unicodedata.combining(char):
            on_letter = unicodedata.name(char, "").startswith(("LATIN", "GREEK"))
            kept.append(char)
        elif not on_letter:
            kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).translate(_LETTERS)


def _person(parsing: _Parsing, acronym: bool) -> Name:
    if not vocabulary.AND.isdisjoint(parsing.dotted):
        return Name("person", " ".join(parsing.dotted), steps=frozenset(parsing.steps))  # several people
    _take_honours(parsing)
    _turn_comma(parsing)
    words = parsing.dotted
    while len(words) > 1 and _undotted(words[0].rstrip(",")) in vocabulary.TITLES and not _is_initial(words[0]):
        parsing.titles.append(parsing.take(0))
    generation = ""
    if len(words) > 1 and (last := _undotted(words[-1])) in vocabulary.GENERATIONS:
        generation = vocabulary.GENERATIONS[last]
        parsing.take(-1)
    names = tuple(part for word in words for part in _letters(word).split())
    alone = len(names) == 1 and not generation
    shown_title = [parsing.titles[-1]] if alone and parsing.titles and parsing.titles[-1] != "the" else []
    if len(shown_title) < len(parsing.titles):
        parsing.steps.add("title")
    titles, steps = tuple(parsing.titles), frozenset(parsing.steps)
    form = "" if alone else FORM_OF_GENDER[_gender(titles)]
    key = " ".join(filter(None, [form, *shown_title, *names, generation]))
    return Name("person", key, names, form, generation, titles, steps, acronym and len(names) == 1)


def _gender(titles: Iterable[str]) -> str:
    is_male, is_female = (not names.isdisjoint(titles) for names in (vocabulary.MALE, vocabulary.FEMALE))
    return ("m" if is_male else "f") if is_male != is_female else ""


def _take_honours(parsing: _Parsing) -> None:
    """Remove degrees and orders behind a name of two words or more."""
    while len(parsing.dotted) > 2 and _undotted(parsing.dotted[-1]) in vocabulary.HONOURS:
        parsing.take(-1)
        parsing.steps.add("title")
    parsing.dotted[-1] = parsing.dotted[-1].rstrip(",") or parsing.dotted[-1]


def _turn_comma(parsing: _Parsing) -> None:
    """Turn "gates, bill" round. A comma before "jr" is left out."""
    before, comma, after = " ".join(parsing.dotted).partition(",")
    words = after.split()
    if not comma or not before.strip() or not words:
        return
    if _undotted(words[0]) in vocabulary.GENERATIONS:
        parsing.dotted[:] = [*before.split(), *words]
    elif "," not in after and len(before.split()) <= 3:
        parsing.dotted[:] = [*words, *before.split()]
        parsing.steps.add("comma")


def _organization(parsing: _Parsing, kind: Kind, acronym: bool) -> Name:
    words = [word for word in (part.strip(",") for part in parsing.dotted) if word]
    parsing.dotted[:] = [piece for word in words for piece in _pieces(word)]
    forms = list[str]()
    while parsing.dotted[:-1] not in ([], ["the"]) and (form := _form(parsing.dotted[-1], kind)):
        parsing.take(-1)
        if form in vocabulary.COMPANION_FORMS and len(parsing.dotted) > 1 and parsing.dotted[-1] in vocabulary.AND:
            parsing.take(-1)
        forms.insert(0, form)
    while len(parsing.dotted) > 1 and (form := _form(parsing.dotted[0], kind)) and _may_lead(form, kind):
        parsing.take(0)
        forms.append(form)
    if len(parsing.dotted) > 2 and parsing.dotted[0] == "the":
        parsing.take(0)
        parsing.steps.add("article")
    names = tuple(name for word in parsing.dotted if (name := _undotted(word)))
    if forms:
        parsing.steps.add("legal form")
    form = " ".join(forms)
    key = " ".join([*names, *filter(None, [form])])
    return Name(kind, key, names, form, "", (), frozenset(parsing.steps), acronym and len(names) == 1)


def _form(word: str, kind: Kind) -> str:
    """The shortest form of a legal form; "" if the word is none."""
    plain = _undotted(word).replace("/", "")
    if plain in vocabulary.DOTTED_FORMS and "." not in word:
        return ""
    return plain if kind == "team" and plain in vocabulary.CLUB_FORMS else vocabulary.LEGAL_FORMS.get(plain, "")


def _may_lead(form: str, kind: Kind) -> bool:
    return form in vocabulary.LEADING_FORMS or (kind == "team" and form in vocabulary.CLUB_FORMS)


def _pieces(word: str) -> list[str]:
    return ["and"] if word in ("&", "+") else word.replace("-", " ").split()


def _undotted(word: str) -> str:
    return word.replace(".", "").strip(",")


def _is_initial(word: str) -> bool:
    return len(_undotted(word)) == 1 and "." in word


def _letters(word: str) -> str:
    """A word of a person's name: `j.r.r.` as `j r r`, others without their dots."""
    return " ".join(word.replace(".", "")) if _INITIALS.fullmatch(word) else _undotted(word)

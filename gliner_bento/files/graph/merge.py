"""Which names of one document are of one thing.

A name joins a fuller one of the same label if that is the only one that it can be of. Names are compared through an
index of their parts, so the cost grows with the number of different names, and not with its square.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gliner_bento.files.graph import vocabulary
from gliner_bento.files.graph.names import FORM_OF_GENDER, Name

_MAX_CANDIDATES = 16
"""A part that more names share says nothing: the others are not looked at."""

_TITLE_START = 3
"""Letters that a title has in common with its short form: "captain", "capt"."""

_FIRST_CJK = "\u2e80"


class Merge(NamedTuple):
    """The key of the name that another one joins, and why: "" if they differ only in a legal form or in gender."""

    key: str
    reason: str


@dataclass(slots=True)
class _Person:
    """A person of the document: the fullest name, and what the titles of all names say. gender: as in `Name`."""

    name: Name
    gender: str


@dataclass(slots=True)
class _Index:
    """The names that have a part, by part. A dictionary holds the order in which they came, and each once."""

    _names: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, part: str, key: str) -> None:
        """Add a name's key to a part, unless it has enough to be of no use."""
        if len(keys := self._names[part]) <= _MAX_CANDIDATES:
            keys[key] = None

    def get(self, part: str) -> Iterable[str]:
        """The keys of the names with this part."""
        return self._names.get(part, ())

    def is_full(self, part: str) -> bool:
        """Whether more names have this part than are kept."""
        return len(self._names.get(part, ())) > _MAX_CANDIDATES


def merges(names: Iterable[Name]) -> dict[str, Merge]:
    """The names of one label in one document that join another one, by key. names: different ones, as `together`
    returns them. The result does not depend on their order."""
    parsed = [name for name in names if name.words]
    if not parsed:
        return {}
    kind = parsed[0].kind
    return dict(_of_persons(parsed) if kind == "person" else _of_organizations(parsed, kind == "team"))


def together(name: Name, same: Name | None) -> Name:
    """A name with all titles of two mentions of it. same: another mention with the same key."""
    if same is None or (name.titles == same.titles and name.acronym == same.acronym):
        return same or name
    return replace(name, titles=tuple(sorted({*name.titles, *same.titles})), acronym=name.acronym or same.acronym)


def _of_persons(names: list[Name]) -> Iterator[tuple[str, Merge]]:
    """Fuller names come first, so all that a name can be of is known when it comes."""
    names.sort(
        key=lambda name: (
            *(-len(name.words), -_full(name), not name.generation, not name.form, not name.titles),
            name.key,
        )
    )
    persons, index, joined = dict[str, _Person](), _Index(), dict[str, Merge]()
    first_names = _first_names(names)
    alone = defaultdict[str, set[str]](set)
    for name in names:
        if len(name.words) == 1:
            alone[name.base] |= {name.gender} - {""}
    for name in names:
        is_unclear = _has_two_first_names(name, first_names)
        found = _of_same_words(name, persons, index) or ({} if is_unclear else _candidates(name, persons, index))
        if name.gender and len(name.words) == 1 and len(alone[name.base]) > 1:  # "Mr Smith" and "Mrs Smith"
            found = {key: reason for key, reason in found.items() if key and persons[key].gender == name.gender}
        if len(found) == 1 and "" not in found:
            ((key, reason),) = found.items()
            persons[key].gender = persons[key].gender or name.gender
            joined[name.key] = Merge(key, reason)
        else:
            persons[name.key] = _Person(name, name.gender)
            index.add(f"same:{name.formless}", name.key)
            for part in _parts(name):
                index.add(part, name.key)
            if len(name.words) > 1 and not is_unclear:
                index.add(_pattern(name), name.key)
    yield from _with_genders(joined, persons)


def _with_genders(joined: Mapping[str, Merge], persons: Mapping[str, _Person]) -> Iterator[tuple[str, Merge]]:
    """The names that join another one, also that of the same person with a gender that only other names have said."""
    keys = {key: _key_with_gender(person) for key, person in persons.items()}
    for key, with_gender in keys.items():
        if with_gender != key:
            yield key, Merge(with_gender, "")
    for name, merge in joined.items():
        yield name, merge._replace(key=keys[merge.key])


def _key_with_gender(person: _Person) -> str:
    name = person.name
    if name.form or not person.gender or (len(name.words) == 1 and not name.generation):
        return name.key
    return f"{FORM_OF_GENDER[person.gender]} {name.formless}"


def _of_same_words(name: Name, persons: Mapping[str, _Person], index: _Index) -> dict[str, str]:
    """The keys of those who have this name of two words or more with a title that says their gender."""
    if len(name.words) == 1 and not name.generation:
        return {}
    return {key: "" for key in index.get(f"same:{name.formless}") if _agree(name, persons[key])}


def _candidates(name: Name, persons: Mapping[str, _Person], index: _Index) -> dict[str, str]:
    """The keys of all persons that a name can be of, with the reason. "" is one of them if there are too many."""
    found: dict[str, str] = {}
    parts = {_pattern(name): "initials", name.base: ""} if len(name.words) > 1 else {name.base: ""}
    if name.acronym:
        parts[f"acronym:{name.base}"] = "acronym"
    for part, reason in parts.items():
        if index.is_full(part):
            return {"": ""}
        for key in index.get(part):
            person = persons[key]
            if _agree(name, person) and (reason != "initials" or _fits(name.words, person.name.words)):
                found.setdefault(key, reason or _reason(name, person.name))
    return found


def _agree(name: Name, person: _Person) -> bool:
    """Whether titles and generations do not contradict. "John Smith" is not "John Smith Jr."."""
    fuller, is_alone, same_words = person.name, len(name.words) == 1, name.words == person.name.words
    if name.gender and person.gender and name.gender != person.gender:
        return False
    if not same_words and (is_alone or name.words[0] != fuller.words[0]) and not _may_be_surname(name, person):
        return False
    if name.generation != fuller.generation and (name.generation or (same_words and not is_alone)):
        return False
    if is_alone and same_words and name.titles and fuller.titles and not fuller.generation:
        return False  # "Dr Smith" and "Mr Smith"
    return not _reigns(name) or _reigns(fuller) or bool(fuller.generation)


def _may_be_surname(name: Name, person: _Person) -> bool:
    """Whether the titles before a name allow that it is the surname of a person. "Justice Smith" is not "Will Smith",
    and "Mrs Clinton" not "Bill Clinton", who may be her husband."""
    known = {title[:_TITLE_START] for title in person.name.titles}
    first_names = vocabulary.FIRST_NAMES.intersection(name.titles)
    if not known.issuperset(title[:_TITLE_START] for title in first_names):
        return False
    return bool(person.gender) or vocabulary.WIFE.isdisjoint(name.titles)


def _reigns(name: Name) -> bool:
    return not vocabulary.REIGNING.isdisjoint(name.titles)


def _fits(words: tuple[str, ...], fuller: tuple[str, ...]) -> bool:
    """Whether a name is a fuller one with initials, or without the names in its middle. "George W. Bush" is not "George
    H. W. Bush"."""
    if not (_same(words[0], fuller[0]) or _same(fuller[0], words[0])) or words[-1] != fuller[-1]:
        return False
    middle, fuller_middle = words[1:-1], fuller[1:-1]
    return not middle or (len(middle) == len(fuller_middle) and all(map(_same, middle, fuller_middle)))


def _same(word: str, full: str) -> bool:
    """Whether a word is the other one, or its initial."""
    return word == full or (_is_initial(word) and full.startswith(word))


def _is_initial(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word < _FIRST_CJK


def _full(name: Name) -> int:
    return sum(not _is_initial(word) for word in name.words)


def _pattern(name: Name) -> str:
    return f"initials:{name.words[0][0]} {name.words[-1]}"


def _parts(name: Name) -> Iterator[str]:
    """What a shorter name of this person can be: the first word, words to the end, and the initials of all. More words
    from the start are another's name: "Martin Luther" is not "Martin Luther King"."""
    words = name.words
    for part in (words[:1], *(words[start:] for start in range(len(words)))):
        if not all(map(_is_initial, part)):
            yield " ".join(part)
    if len(words) > 2:
        yield "acronym:" + "".join(word[0] for word in words)


def _reason(name: Name, fuller: Name) -> str:
    """Why a name that is a part of a fuller one joins it."""
    if name.words == fuller.words:
        return "generation" if name.generation != fuller.generation else "title"
    return "surname" if name.words == fuller.words[-len(name.words) :] else "given name"


def _first_names(names: Iterable[Name]) -> dict[str, set[str]]:
    """The full first names, two at most, by initial and last name."""
    firsts = defaultdict[str, set[str]](set)
    for name in names:
        if len(name.words) > 1 and not _is_initial(name.words[0]) and len(firsts[_pattern(name)]) < 2:
            firsts[_pattern(name)].add(name.words[0])
    return firsts


def _has_two_first_names(name: Name, firsts: Mapping[str, set[str]]) -> bool:
    """Whether an initial at the start stands for one of several first names: "J. Smith" beside "Jane" and "John"."""
    return len(name.words) > 1 and _is_initial(name.words[0]) and len(firsts.get(_pattern(name), ())) > 1


def _of_organizations(names: list[Name], short: bool) -> Iterator[tuple[str, Merge]]:
    """short: whether the first or the last words of a name stand for it, as those of teams do."""
    names.sort(key=lambda name: (-len(name.words), not name.form, name.key))
    index, by_base = _Index(), _Index()
    for name in names:
        found = _organizations(name, index, by_base)
        if len(found) == 1 and "" not in found:
            ((key, reason),) = found.items()
            yield name.key, Merge(key, reason)
            continue
        by_base.add(name.base, name.key)
        for part in _organization_parts(name, short):
            index.add(part, name.key)


def _organizations(name: Name, index: _Index, by_base: _Index) -> dict[str, str]:
    """The keys of all that a name without a legal form can be of, with the reason."""
    if name.form:
        return {}
    if same := by_base.get(name.base):
        return dict.fromkeys(same, "")
    parts = {f"the:{name.base}": "article", f"part:{name.base}": "part of the name"}
    if name.acronym:
        parts[f"acronym:{name.base}"] = "acronym"
    found: dict[str, str] = {}
    for part, reason in parts.items():
        if index.is_full(part):
            return {"": ""}
        for key in index.get(part):
            found.setdefault(key, reason)
    return found


def _organization_parts(name: Name, short: bool) -> Iterator[str]:
    """What a shorter name of this organization can be. The legal form may be in an acronym."""
    words = name.words
    if words[0] == "the" and len(words) == 2:
        yield f"the:{words[1]}"
    if short:
        for length in range(1, len(words)):
            yield f"part:{' '.join(words[:length])}"
            yield f"part:{' '.join(words[-length:])}"
    for all_words in (words, (*words, *name.form.split())):
        yield "acronym:" + "".join(word[0] for word in all_words)
        yield "acronym:" + "".join(word[0] for word in all_words if word not in vocabulary.JOINING)

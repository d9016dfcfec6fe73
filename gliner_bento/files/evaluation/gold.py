"""Examples with known entities, relations and classes, and what a file of any format must say. Knows no file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Span(NamedTuple):
    """An entity: the characters from `start` up to `end`."""

    start: int
    end: int
    label: str


class Link(NamedTuple):
    """A relation, by the texts of its entities."""

    head: str
    relation: str
    tail: str


class Choice(NamedTuple):
    """A label that fits the whole text, of the classification `question`."""

    question: str
    label: str


@dataclass(frozen=True, slots=True)
class Example:
    """A text and what is known of it. where: its file and line, for messages.

    entities: None if they are not known. questions: the classifications whose labels are known; `choices` has the
    labels, several or none for a question that has several labels at a time.
    """

    where: str
    text: str
    entities: frozenset[Span] | None
    relations: frozenset[Link] = frozenset()
    questions: frozenset[str] = frozenset()
    choices: frozenset[Choice] = frozenset()


_ENTITY_FIELDS = ("entities", "spans", "ents", "label")
"""Names of the field with the entities: ours, Prodigy's, spaCy's, and Label Studio's in its short export."""


def example(record: Any, where: str, text_column: str = "text") -> Example:
    """The example that a JSON value describes: an object, or spaCy's pair of a text and its entities.

    Raises ValueError, which names the field.
    """
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], list | dict):
        text, fields = record[0], record[1] if isinstance(record[1], dict) else {"entities": record[1]}
    elif isinstance(record, dict):
        text, fields = record.get(text_column), record
    else:
        raise ValueError("must be an object, or a pair of a text and its entities")
    if not isinstance(text, str):
        raise ValueError(f"{text_column}: must be a string")
    name = next((name for name in _ENTITY_FIELDS if fields.get(name) is not None), None)
    classes = fields.get("classifications")
    if name is None and classes is None:
        raise ValueError(f"entities: is missing; so are {', '.join(_ENTITY_FIELDS[1:])} and classifications")
    listed = _spans_of(fields[name], text, name) if name else []
    relations = fields.get("relations")
    links = _links_of([] if relations is None else relations, text, listed)
    questions, choices = _choices_of({} if classes is None else classes)
    return Example(
        where,
        text,
        frozenset(span for spans in listed for span in spans) if name else None,
        frozenset(links),
        questions,
        choices,
    )


def _choices_of(value: Any) -> tuple[frozenset[str], frozenset[Choice]]:
    """The classifications of an object {name: label or labels}, and their labels."""
    if not isinstance(value, dict):
        raise ValueError("classifications: must be an object {name: label}, or {name: [labels]}")
    choices = set()
    for question, given in value.items():
        where = f"classifications.{question}"
        for label in given if isinstance(given, list) else [given]:
            choices.add(Choice(_name(question, "classifications"), _name(label, where)))
    return frozenset(question.strip() for question in value), frozenset(choices)


def span(text: str, start: Any, end: Any, label: Any) -> Span:
    """The entity from `start` up to `end`, without the white space around it. Raises ValueError."""
    label = _name(label, "label")
    for name, value in (("start", start), ("end", end)):
        if type(value) is not int or not 0 <= value <= len(text):
            raise ValueError(f"{name}: must be an integer from 0 to {len(text)}, the length of the text")
    inside = text[start:end]
    if not inside.strip():
        raise ValueError(f"end: no characters from {start} to {end}")
    start += len(inside) - len(inside.lstrip())
    return Span(start, start + len(inside.strip()), label)


def _spans_of(value: Any, text: str, name: str) -> list[list[Span]]:
    """The entities that each value of the list stands for: several if it names a string that occurs again."""
    if isinstance(value, dict):  # {label: strings}
        for label, strings in value.items():
            if not isinstance(strings, list):
                raise ValueError(f"{name}.{label}: must be a list of strings")
        value = [{"text": string, "label": label} for label, strings in value.items() for string in strings]
    if not isinstance(value, list):
        raise ValueError(f"{name}: must be a list")
    strings = {given["text"] for given in value if _is_string_entity(given)}
    places = _places(text, strings)
    listed = []
    for number, given in enumerate(value):
        try:
            listed.append(_entity(given, text, places))
        except ValueError as error:
            raise ValueError(f"{name}[{number}]: {error}") from None
    return listed


def _is_string_entity(given: Any) -> bool:
    return isinstance(given, dict) and "start" not in given and isinstance(given.get("text"), str)


def _entity(given: Any, text: str, places: Mapping[str, Sequence[int]]) -> list[Span]:
    """The entities of one value: offsets and a label, or a string and a label. places: where the strings are."""
    if isinstance(given, list) and len(given) == 3:
        return [span(text, *given)]
    if not isinstance(given, dict):
        raise ValueError("must be [start, end, label], or an object")
    labels = given.get("labels", [given.get("label")])
    if not isinstance(labels, list) or not labels:
        raise ValueError("labels: must be a list of names")
    if _is_string_entity(given):
        string = given["text"].strip()
        if not places.get(given["text"]):
            raise ValueError(f"text: {string!r} is not in the text, or only in a longer name of the list")
        starts = places[given["text"]]
        return [Span(start, start + len(string), _name(label, "label")) for start in starts for label in labels]
    spans = [span(text, given.get("start"), given.get("end"), label) for label in labels]
    check_text(given, text, spans[0])
    return spans


def check_text(given: Mapping[str, Any], text: str, there: Span) -> None:
    """Raise ValueError if `given` has a `text` that is not at its offsets; white space does not count."""
    string, inside = given.get("text"), text[there.start : there.end]
    if isinstance(string, str) and string.split() != inside.split():
        raise ValueError(f"text: is {string!r}, but there is {inside!r} from {there.start} to {there.end}")


def _places(text: str, strings: Iterable[str]) -> dict[str, list[int]]:
    """Where each string begins in the text, as whole words, and not inside one of the longer strings."""
    found: dict[str, list[int]] = {}
    taken = bytearray(len(text))
    for string in sorted(strings, key=len, reverse=True):
        if not (stripped := string.strip()):
            continue
        left, right = (r"(?<!\w)" if stripped[0].isalnum() else "", r"(?!\w)" if stripped[-1].isalnum() else "")
        matches = re.finditer(left + re.escape(stripped) + right, text)
        found[string] = [match.start() for match in matches if not any(taken[match.start() : match.end()])]
        for start in found[string]:
            taken[start : start + len(stripped)] = b"\1" * len(stripped)
    return found


def _links_of(value: Any, text: str, listed: Sequence[Sequence[Span]]) -> Iterator[Link]:
    """The relations. An end of a relation is a string, offsets, or the index of an entity."""
    if not isinstance(value, list):
        raise ValueError("relations: must be a list")
    for number, given in enumerate(value):
        where = f"relations[{number}]"
        if not isinstance(given, dict):
            raise ValueError(f"{where}: must be an object with head, tail and relation")
        try:
            head, tail = (_end(given.get(name), text, listed, name) for name in ("head", "tail"))
            yield Link(head, _name(given.get("relation", given.get("label")), "relation"), tail)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _end(given: Any, text: str, listed: Sequence[Sequence[Span]], name: str) -> str:
    if isinstance(given, dict) and "start" in given:
        try:
            there = span(text, given["start"], given.get("end"), "any")
            check_text(given, text, there)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return folded(text[there.start : there.end])
    if isinstance(given, dict):
        given = given.get("text")
    if type(given) is int and 0 <= given < len(listed):
        there = listed[given][0]
        return folded(text[there.start : there.end])
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"{name}: must be a string, offsets, or the index of an entity")
    if folded(given) not in folded(text):
        raise ValueError(f"{name}: {given!r} is not in the text")
    return folded(given)


def folded(string: str) -> str:
    """A string with single spaces: a line end inside a name does not make another name."""
    return " ".join(string.split())


def _name(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field}: must be a string that is not empty")
    return value.strip()

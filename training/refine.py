"""Finer types for coarse annotations, from relations and from short place lists, where the finer type is certain."""

from __future__ import annotations

import re
from collections.abc import Iterable

from training.records import Mention, Record

YEAR = re.compile(r"(1\d{3}|20\d{2})$")

FROM_RELATION: dict[str, tuple[str | None, str | None]] = {
    "performer": (None, "musician"),
    "cast member": ("film or tv show", "actor"),
    "director": ("film or tv show", "film director"),
    "wrote": ("writer", "written work"),
    "political party": ("politician", "political party"),
    "record label": (None, "record label"),
    "won": (None, "award"),
    "studied at": ("person", "university"),
    "plays for": ("athlete", "sports team"),
    "military branch": (None, "military unit"),
    "nationality": (None, "country"),
    "religion": (None, "religion"),
    "president of": ("politician", None),
    "head of government of": ("politician", None),
    "main subject": (None, None),
    "crosses": ("bridge", None),
}
"""Relation to the finer types of its head and tail (None: says nothing)."""

KINDS = {
    "musician": "person",
    "actor": "person",
    "film director": "person",
    "writer": "person",
    "politician": "person",
    "athlete": "person",
    "person": "person",
    "political party": "organization",
    "record label": "organization",
    "university": "organization",
    "sports team": "organization",
    "military unit": "organization",
    "country": "location",
    "award": "miscellaneous",
    "religion": "miscellaneous",
    "film or tv show": "miscellaneous",
    "written work": "miscellaneous",
}
"""The coarse annotation that a finer type may replace: a relation never overrules the annotator's kind."""

PLACE_TYPES = frozenset({"country", "state", "city"})

EITHER_WAY = frozenset({("redocred", "child of")})
"""Source and relation, where the annotation does not say which of the two is the head."""


class Refiner:
    """Applies the relation table and the place lists to records."""

    def __init__(self, places: dict[str, list[str]]) -> None:
        """`places`: type to names, for country, state, city and nationality."""
        self._places = {name.lower(): kind for kind, names in places.items() for name in names}

    def refine(self, record: Record) -> Record:
        """The record with finer types; derived place types join the pool because the lists decide them."""
        if record.source == "templates":
            return record
        derived = self._from_relations(record)
        mentions = [self._mention(record, i, mention, derived) for i, mention in enumerate(record.mentions)]
        types = {mention.type for mention in mentions if mention.type}
        record.mentions = mentions
        self._leave_open(record)
        record.pool = record.pool | types
        if "location" in record.pool:
            record.pool = record.pool | PLACE_TYPES
        if "date" in record.pool:
            record.pool = record.pool | {"year"}
        return record

    def _leave_open(self, record: Record) -> None:
        """Remove relations without a direction; nothing is known of their pairs."""
        unsure = [one for one in record.relations if (record.source, one[2]) in EITHER_WAY]
        record.relations = [one for one in record.relations if one not in unsure]
        record.unknown_pairs |= {pair for head, tail, _ in unsure for pair in ((head, tail), (tail, head))}

    def _from_relations(self, record: Record) -> dict[int, str]:
        derived: dict[int, str] = {}
        for head, tail, name in record.relations:
            for position, finer in zip((head, tail), FROM_RELATION.get(name, (None, None)), strict=True):
                if finer and KINDS.get(finer) == record.mentions[position].type:
                    derived[position] = finer
        return derived

    def _mention(self, record: Record, position: int, mention: Mention, derived: dict[int, str]) -> Mention:
        kind = mention.type
        text = record.text_of(mention)
        if kind == "date" and YEAR.match(text):
            kind = "year"
        elif kind == "location":
            kind = self._places.get(text.lower(), kind)
        if kind == mention.type and position in derived:
            kind = derived[position]
        return Mention(mention.first, mention.last, kind)


def refine_all(records: Iterable[Record], places: dict[str, list[str]]) -> list[Record]:
    """Refine every record."""
    refiner = Refiner(places)
    return [refiner.refine(record) for record in records]

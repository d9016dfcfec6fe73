"""Types and relations by name: parents, synonyms, and names that must not occur in one prompt for different types."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

PARENTS = {
    "year": "date",
    "month": "date",
    "state": "location",
    "landmark": "facility",
    "bridge": "facility",
    "river": "location",
    "body of water": "location",
    "university": "organization",
    "political party": "organization",
    "record label": "company",
    "military unit": "organization",
    "writer": "person",
    "musician": "artist",
    "actor": "artist",
    "film director": "person",
    "song": "song or album",
    "album": "song or album",
    "restaurant name": "facility",
    "programming language": "language",
    "operating system": "software",
    "application": "software",
    "game": "software",
}
"""Child to parent, in addition to the pairs in the label file of the data."""

SYNONYMS = {
    "person": ["people", "persons", "name", "full name"],
    "organization": ["organizations", "organisations"],
    "company": ["companies", "company name"],
    "location": ["locations", "places"],
    "city": ["cities", "town", "city name"],
    "country": ["countries"],
    "date": ["dates", "day or date"],
    "year": ["years"],
    "product": ["products"],
    "event": ["events"],
    "job title": ["job titles", "job", "title of a person"],
    "money": ["price", "sum of money"],
    "phone number": ["phone numbers", "telephone"],
    "email address": ["emails", "mail address"],
    "writer": ["author", "novelist"],
    "film director": ["director"],
    "musician": ["singer"],
}

UNDIRECTED = frozenset({"parent", "child"})
"""Names in the label file that do not say who is whose: they are not used."""

SYMMETRIC = frozenset({
    "allied with", "argued with", "at war with", "borders", "colleague of", "collided with", "compared with",
    "competitor of", "cousin of", "dating", "divorced from", "drew with", "engaged to", "flatmate of", "friend of",
    "interacts with", "married to", "merged with", "met", "opponent of", "partner of", "sibling", "sibling of",
    "twinned with",
})  # fmt: skip
"""Relations that hold both ways. Any other that holds one way does not hold the other way, unless it is annotated."""

CONVERSES = frozenset(
    {"parent of", "mother", "teacher of", "succeeded by", "followed by", "grandchild of", "lost to", "manages"}
)
"""Converses of relations between entities of one type. A model that is asked for both from the start learns that two
people are related, but not who is whose, because the names of the two relations are similar."""

RELATION_FAMILIES = (
    ("located in", "country", "part of", "headquartered in", "capital of", "founded at", "next to water",
     "takes place in"),
    ("owned by", "subsidiary of", "part of", "acquired", "makes", "operator", "invested in", "owns", "unit of"),
    ("works at", "member of", "CEO of", "chairperson", "president of", "job title", "founded", "head of government of",
     "mayor of", "chair of", "manages", "plays for", "political party", "military branch"),
    ("creator", "wrote", "director", "producer", "composer", "makes", "performer", "cast member", "publisher",
     "author of"),
    ("lives in", "born in", "nationality", "died in", "country", "located in", "ethnic group", "has nationality"),
    ("point in time", "takes place on", "start time", "end time", "founded in", "published on", "born on", "died on",
     "released in"),
    ("attended", "studied at", "works at", "won", "fought in"),
    ("mother", "child of", "sibling", "parent of", "sibling of", "married to"),
    ("value", "has quantity", "increased by", "decreased by", "property of", "value in", "has revenue", "has profit"),
    ("language", "original language", "speaks"),
    ("member of", "part of", "plays for", "subsidiary of", "located in"),
    ("character in", "cast member", "performer", "main subject", "part of"),
)  # fmt: skip
"""Relations that may hold together: where the source names one of a pair, the others are unknown, not false."""


@dataclass(slots=True)
class Relation:
    """A directed relation with names for head-to-tail (`names`) and tail-to-head (`inverse`)."""

    names: list[str]
    inverse: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Ontology:
    """All known entity types and relations."""

    parents: dict[str, str] = field(default_factory=lambda: dict(PARENTS))
    synonyms: dict[str, list[str]] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)

    def ancestors(self, name: str) -> list[str]:
        """Parent, grandparent and so on, nearest first."""
        chain: list[str] = []
        while name in self.parents and self.parents[name] not in chain:
            name = self.parents[name]
            chain.append(name)
        return chain

    def lineage(self, name: str) -> list[str]:
        """The type itself and its ancestors, most specific first."""
        return [name, *self.ancestors(name)]

    def names(self, name: str) -> list[str]:
        """Names to show for a type: itself (weighted) and synonyms that are no ancestor's name."""
        above = {other for parent in self.ancestors(name) for other in [parent, *self.synonyms.get(parent, [])]}
        extra = [other for other in self.synonyms.get(name, []) if other not in above and other != name]
        return [name, *extra]

    def name_set(self, name: str) -> frozenset[str]:
        """Lower-cased names of a type, to see whether two types overlap."""
        return frozenset(other.lower() for other in self.names(name))

    def relation_names(self, name: str) -> frozenset[str]:
        """Lower-cased names of a relation in either direction."""
        relation = self.relations[name]
        return frozenset(other.lower() for other in [name, *relation.names, *relation.inverse])

    def add_type(self, name: str, parent: str | None, synonyms: list[str]) -> None:
        """Declare a type; a second declaration adds synonyms and keeps the first parent."""
        if parent and parent != name and name not in self.ancestors(parent):
            self.parents.setdefault(name, parent)
        known = self.synonyms.setdefault(name, [])
        known.extend(other for other in synonyms if other not in known and other != name)

    def add_relation(self, name: str, names: list[str]) -> None:
        """Declare a relation; a second declaration adds names."""
        relation = self.relations.setdefault(name, Relation([]))
        relation.names.extend(other for other in names if other not in relation.names and other != name)


def load_ontology(labels_file: Path | None) -> Ontology:
    """The built-in types plus those of the data's label file (ENT, REL, PARENT), where one is given."""
    ontology = Ontology()
    if labels_file is not None:
        labels = json.loads(labels_file.read_text(encoding="utf-8"))
        for child, parent in labels["PARENT"].items():
            ontology.parents.setdefault(child, parent)
        for name, synonyms in labels["ENT"].items():
            ontology.add_type(name, None, list(dict.fromkeys(synonyms)))
        for name, directions in labels["REL"].items():
            forward, inverse = ([one for one in dict.fromkeys(given) if one not in UNDIRECTED] for given in directions)
            ontology.add_relation(name, forward)
            # A symmetric relation lists its own name as the inverse.
            ontology.relations[name].inverse.extend(inverse)
    for name, synonyms in SYNONYMS.items():
        ontology.add_type(name, None, synonyms)
    return ontology


def relation_families() -> dict[str, frozenset[str]]:
    """For each relation, those that may hold for the same pair."""
    together: dict[str, set[str]] = {}
    for family in RELATION_FAMILIES:
        for name in family:
            together.setdefault(name, set()).update(family)
    return {name: frozenset(others - {name}) for name, others in together.items()}

"""IRIs of nodes, labels and relations, for formats of the semantic web."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

NAMESPACE = "urn:gliner-bento:"
PROPERTIES = f"{NAMESPACE}property:"
"""Begins the IRIs of counts and aliases. No name has a colon in its IRI, so no relation has one of these."""
NAME = "https://schema.org/name"

_IRI = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|urn:[A-Za-z0-9-]+:)[^\x00-\x20<>\"{}|^`\\\ud800-\udfff]*")
_SECTIONS = ("base", "labels", "relations")


@dataclass(frozen=True, slots=True)
class Iris:
    """base: begins the IRIs of nodes, and of labels and relations that have none here."""

    base: str = NAMESPACE
    labels: Mapping[str, str] = field(default_factory=dict)
    relations: Mapping[str, str] = field(default_factory=dict)

    def node(self, name: str) -> str:
        """The IRI of a node, by its id."""
        return self.base + quote(name, safe="/")

    def label(self, name: str) -> str:
        """The IRI of a label, a class."""
        return self.labels.get(name) or self.node(name)

    def relation(self, name: str) -> str:
        """The IRI of a relation, a property."""
        return self.relations.get(name) or self.node(name)


def parse_iris(content: Any) -> Iris:
    """IRIs from the content of a file: `{base: IRI, labels: {name: IRI}, relations: {name: IRI}}`, all optional.
    Raises ValueError."""
    if not isinstance(content, dict) or not content or not content.keys() <= set(_SECTIONS):
        raise ValueError(f"must be an object with {', '.join(_SECTIONS)}")
    maps = {section: content[section] for section in _SECTIONS[1:] if content.get(section) is not None}
    for section, iris in maps.items():
        if not isinstance(iris, dict) or not all(isinstance(name, str) for name in iris):
            raise ValueError(f"{section}: must be names with IRIs")
    base = content.get("base") or NAMESPACE
    for place, iri in [
        ("base", base),
        *((f"{key}: {name}", iri) for key, of in maps.items() for name, iri in of.items()),
    ]:
        if not isinstance(iri, str) or not _IRI.fullmatch(iri):
            raise ValueError(f"{place}: {iri!r} is not an IRI such as https://schema.org/Person")
    return Iris(
        base, **{section: {" ".join(name.split()): iri for name, iri in of.items()} for section, of in maps.items()}
    )

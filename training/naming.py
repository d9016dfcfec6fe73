"""How labels are written in a prompt: synonyms, plurals and underscores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from training.ontology import Ontology

IRREGULAR = {"person": "people", "human": "humans", "species": "species", "news": "news"}


@dataclass(frozen=True, slots=True)
class NameStyle:
    """The style in which one example writes all its labels."""

    underscores: bool
    plural: bool


def plural(name: str) -> str:
    """The English plural of a label (its last word)."""
    head, _, last = name.rpartition(" ")
    if last in IRREGULAR:
        last = IRREGULAR[last]
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        last = last[:-1] + "ies"
    elif last.endswith(("s", "x", "ch", "sh")):
        last += "es"
    else:
        last += "s"
    return f"{head} {last}".strip()


class Namer:
    """Draws the names that a prompt shows."""

    def __init__(self, ontology: Ontology, rng: random.Random) -> None:
        """Names come from the ontology, choices from `rng`."""
        self._onto = ontology
        self._rng = rng

    def style(self) -> NameStyle:
        """A style for one example."""
        return NameStyle(underscores=self._rng.random() < 0.15, plural=self._rng.random() < 0.08)

    def type_name(self, name: str, types: Sequence[str], style: NameStyle) -> str:
        """A name for a type that no other type in the prompt has."""
        taken = {label for other in types if other != name for label in [other, *self._onto.ancestors(other)]}
        options = [label for label in self._onto.names(name) if label not in taken] or [name]
        label = name if self._rng.random() < 0.55 else self._rng.choice(options)
        if style.plural and not label.endswith("s"):
            label = plural(label)
        return label.replace(" ", "_") if style.underscores else label

    def backwards(self, name: str) -> bool:
        """Whether to prompt a relation by a tail-to-head name."""
        return bool(self._onto.relations[name].inverse) and self._rng.random() < 0.25

    def relation_name(self, name: str, backwards: bool, style: NameStyle) -> str:
        """A name for a relation in the given direction."""
        relation = self._onto.relations[name]
        if backwards:
            label = self._rng.choice(relation.inverse)
        elif self._rng.random() < 0.55:
            label = name
        else:
            label = self._rng.choice([name, *relation.names])
        return label.replace(" ", "_") if style.underscores else label

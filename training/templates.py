"""The template files: their parser, and sentences made from them.

A file declares types, value lists and relations and holds sentences with slots; `templates/FORMAT.md` describes the
format. Slots become annotated mentions of the generated text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from training.frames import ALTERNATIVES, Frame, parse_frame, spread
from training.ontology import Ontology
from training.records import Mention, Record, split_words
from training.slots import GENERATORS

DATA = Path(__file__).parent / "data"
SLOT = re.compile(r"\{(~?)([^{}#@]+)(?:#([^{}#@]+))?(?:@([^{}#@]+))?\}")
DIRECTIVE = re.compile(r"@(?:type|list|rel)\s")
RELATION = re.compile(r"^(?:(not|maybe) )?(.+?)\(([^(),]+),([^(),]+)\)$")
COLUMN = "¦"
"""What separates the columns of a table."""

Triple = tuple[int, int, str]

OWN_RELATIONS = frozenset({"relations", "breadth", "held_out"})
"""Domains whose relations are asked in their own texts alone, because the older files do not list where they hold."""


class TemplateError(ValueError):
    """A template file that does not follow the format."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot: the list that fills it, and the type it is annotated with (None for filler)."""

    values: str
    type: str | None


@dataclass(slots=True)
class Template:
    """Literal text pieces around slots: `pieces` has one more element than `slots`.

    Triples are (head, tail, name) over `slots`: `relations` hold, `denied` do not, `undecided` may.
    """

    pieces: list[str]
    slots: list[Slot]
    relations: list[Triple]
    domain: str
    denied: list[Triple] = field(default_factory=list)
    undecided: list[Triple] = field(default_factory=list)

    @property
    def triples(self) -> list[Triple]:
        """All triples that the template mentions."""
        return [*self.relations, *self.denied, *self.undecided]

    @property
    def converse(self) -> bool:
        """Whether it states a relation in both directions, under two names, of the same kind of entity."""
        stated = {(head, tail): name for head, tail, name in self.relations}
        return any(
            stated.get((tail, head), name) != name and self.slots[head].type == self.slots[tail].type
            for head, tail, name in self.relations
        )


@dataclass(slots=True)
class Library:
    """All templates with their lists and declarations, the latter also by file (`domain`)."""

    templates: list[Template] = field(default_factory=list)
    tables: list[tuple[str, Template]] = field(default_factory=list)
    """The head of a table and its row."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    types: dict[str, set[str]] = field(default_factory=dict)
    relations: dict[str, set[str]] = field(default_factory=dict)


def parse_lists(lines: Iterable[str]) -> dict[str, list[str]]:
    """The `@list` directives of a file."""
    lists: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("@list "):
            name, _, values = line.removeprefix("@list ").partition(":")
            lists.setdefault(name.strip(), []).extend(v.strip() for v in values.split(" | ") if v.strip(" |"))
    return lists


def parse_template(line: str, domain: str) -> Template:
    """One template line; raises `TemplateError` where a relation names an unknown slot."""
    text, _, tail = line.partition(" => ")
    pieces: list[str] = []
    slots: list[Slot] = []
    ids: dict[str, int] = {}
    end = 0
    for match in SLOT.finditer(text):
        filler, name, key, values = match.groups()
        pieces.append(text[end : match.start()])
        end = match.end()
        if key is not None and key.strip() in ids:
            raise TemplateError(f"{domain}: slot id {key!r} used twice in {line!r}")
        if key is not None:
            ids[key.strip()] = len(slots)
        slots.append(Slot((values or name).strip(), None if filler else name.strip()))
    pieces.append(text[end:].rstrip())
    if any("{" in piece or "}" in piece for piece in pieces):
        raise TemplateError(f"{domain}: stray brace in {line!r}")
    template = Template(pieces, slots, [], domain)
    _parse_relations(tail, ids, template)
    return template


def _parse_relations(tail: str, ids: dict[str, int], template: Template) -> None:
    kinds = {None: template.relations, "not": template.denied, "maybe": template.undecided}
    for part in filter(None, (part.strip() for part in tail.split(";"))):
        match = RELATION.match(part)
        if not match or match[3].strip() not in ids or match[4].strip() not in ids:
            raise TemplateError(f"{template.domain}: bad relation {part!r}")
        kinds[match[1]].append((ids[match[3].strip()], ids[match[4].strip()], match[2].strip()))


def _declare(line: str, domain: str, library: Library, ontology: Ontology) -> None:
    """An `@type` or `@rel` line."""
    head, _, rest = line.partition(" : ")
    kind, _, name = head.partition(" ")
    names = [other.strip() for other in rest.split("|") if other.strip()]
    if kind == "@type":
        name, _, parent = name.partition("<")
        ontology.add_type(name.strip(), parent.strip() or None, names)
        library.types.setdefault(domain, set()).add(name.strip())
    elif kind == "@rel":
        ontology.add_relation(name.strip(), names)
        library.relations.setdefault(domain, set()).add(name.strip())


def load_library(ontology: Ontology, *, held_out: bool = False) -> Library:
    """Read `data/names.txt` and every file of `data/templates`, base.txt first; adds declarations to the ontology.

    held_out: also those of `data/held_out`, which are never trained on.
    """
    library = Library(lists=parse_lists((DATA / "names.txt").read_text(encoding="utf-8").splitlines()))
    files = sorted((DATA / "templates").glob("*.txt"), key=lambda path: (path.stem != "base", path.stem))
    if held_out:
        files += sorted((DATA / "held_out").glob("*.txt"))
    for path in files:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        for name, values in parse_lists(lines).items():
            library.lists.setdefault(name, []).extend(values)
        domain = path.stem.partition("-")[0]
        _read_lines(lines, domain, library, ontology)
    for template in (*library.templates, *(row for _, row in library.tables)):
        _check(template, library, ontology)
    return library


def _read_lines(lines: Iterable[str], domain: str, library: Library, ontology: Ontology) -> None:
    """Everything but the lists of a file."""
    frame: Frame | None = None
    for line in lines:
        if DIRECTIVE.match(line):
            _declare(line, domain, library, ontology)
        elif line.startswith("@frame "):
            frame = parse_frame(line)
        elif line.startswith("@table "):
            head, _, row = line.removeprefix("@table ").partition(" : ")
            library.tables.append((head, parse_template(row, domain)))
        elif frame and line[:2] in ("+ ", "- "):
            library.templates.extend(parse_template(text, domain) for text in spread(frame.expand(line)))
        elif line and not line.startswith("# ") and line != "#":
            library.templates.append(parse_template(line, domain))


def _check(template: Template, library: Library, ontology: Ontology) -> None:
    for slot in template.slots:
        if not _sources(slot, library, ontology):
            raise TemplateError(f"{template.domain}: nothing fills slot {slot.values!r}")
    for _, _, name in template.triples:
        if name not in ontology.relations:
            raise TemplateError(f"{template.domain}: relation {name!r} is not declared")


def _sources(slot: Slot, library: Library, ontology: Ontology) -> list[str]:
    """The lists or generators that can fill a slot, best first: its own list, else that of an ancestor."""
    lineage = ontology.lineage(slot.values)
    return [name for name in lineage if name in library.lists or name in GENERATORS]


class Writer:
    """Makes records from a library's templates."""

    def __init__(self, library: Library, ontology: Ontology) -> None:
        """Both as returned by `load_library`."""
        self._library = library
        self._ontology = ontology
        self._shared = frozenset(
            name for domain, names in library.relations.items() if domain not in OWN_RELATIONS for name in names
        )
        declared = {name for names in library.types.values() for name in names}
        self._pool = frozenset(declared | set(GENERATORS))

    def write(self, template: Template, rng: random.Random) -> Record:
        """Fill the slots of a template and annotate the resulting text."""
        values = self._values(template.slots, rng)
        text, *pieces = (_choose(piece, rng) for piece in template.pieces)
        spans: list[tuple[int, int]] = []
        for value, piece in zip(values, pieces, strict=True):
            spans.append((len(text), len(text) + len(value)))
            text += value + piece
        words = split_words(text)
        starts = {start: i for i, (_, start, _) in enumerate(words)}
        ends = {end: i for i, (_, _, end) in enumerate(words)}
        mentions: list[Mention] = []
        position: dict[int, int] = {}
        for i, ((start, end), slot) in enumerate(zip(spans, template.slots, strict=True)):
            # A slot glued to a letter or hyphen is no span of whole words; then it cannot be annotated.
            kind = slot.type or (slot.values if slot.values in self._pool else None)
            if kind is None or start not in starts or end not in ends:
                continue
            position[i] = len(mentions)
            mentions.append(Mention(starts[start], ends[end], slot.type and _exact(slot.type, values[i])))
        relations, denied, undecided = (
            [(position[h], position[t], r) for h, t, r in triples if h in position and t in position]
            for triples in (template.relations, template.denied, template.undecided)
        )
        own = frozenset(self._library.relations.get(template.domain, set()))
        used = frozenset(slot.type for slot in template.slots if slot.type)
        return Record(
            words=[word for word, _, _ in words],
            mentions=mentions,
            source="templates",
            pool=self._pool | used,
            relations=relations,
            rel_pool=own | {name for _, _, name in relations},
            soft_rel_pool=self._shared - own,
            asked=frozenset(name for _, _, name in denied),
            undecided=frozenset(undecided),
        )

    def write_table(self, head: str, row: Template, count: int, rng: random.Random) -> list[Record]:
        """`count` rows of a table; the first also has the head, if there is one."""
        mark = rng.choice(("|", "|", ";", ",", "-", ""))
        rows = [replace(row, pieces=[piece.replace(COLUMN, mark) for piece in row.pieces])] * count
        shown = _choose(head, rng).replace(COLUMN, mark)
        first = replace(rows[0], pieces=[f"{shown} {rows[0].pieces[0]}", *rows[0].pieces[1:]])
        return [self.write(one, rng) for one in [first, *rows[1:]]]

    def _values(self, slots: Sequence[Slot], rng: random.Random) -> list[str]:
        """A value for each slot, without using one twice in a text."""
        values: list[str] = []
        for slot in slots:
            for _ in range(5):
                value = self._value(slot, rng)
                if value not in values:
                    break
            values.append(value)
        return values

    def _value(self, slot: Slot, rng: random.Random) -> str:
        source = _sources(slot, self._library, self._ontology)[0]
        generate = GENERATORS.get(source)
        values = self._library.lists.get(source)
        # If both exist, the generator adds variety and the list well-known values.
        if generate and (not values or rng.random() < 0.8):
            return generate(rng, self._library.lists)
        return rng.choice(values or [])


def _choose(piece: str, rng: random.Random) -> str:
    """A piece with one of the words of each `[one|other]`."""
    return ALTERNATIVES.sub(lambda match: rng.choice(match[1].split("|")), piece)


def _exact(kind: str, value: str) -> str:
    """A date that is a bare year is annotated as a year, which is a date too."""
    return "year" if kind == "date" and value.isdigit() and len(value) == 4 else kind

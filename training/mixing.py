"""The stream of training packs: which sources, and how many records per pack; drawn from one seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from training.noise import noisy
from training.records import Record
from training.templates import OWN_RELATIONS, Library, Template, Writer

WEIGHTS = {
    "multiconer2_en": 0.15,
    "btc": 0.03,
    "wnut17_train": 0.02,
    "wikigold": 0.04,
    "sec_filings": 0.01,
    "stackoverflow_ner": 0.02,
    "presidio_synth": 0.04,
    "slurp_devel": 0.01,
    "snips": 0.015,
    "fire": 0.015,
    "redocred": 0.12,
    "docred_test_ents": 0.05,
    "fewrel_val": 0.03,
    "templates": 0.16,
    "frames": 0.22,
    "crowds": 0.07,
    "directions": 0.20,
}
"""Weights of the sources, in numbers of texts: largest for prose with many types and relations, smallest for chat.

`frames` are `relations-*.txt`, `breadth-*.txt` and `everyday*.txt` of `data/templates`, `templates` the other files.
`crowds` are many short sentences of `frames` about the same few relations, and tables. `directions` are the templates
of all files that state a relation and its converse.
"""

GENERATED = ("templates", "frames", "crowds", "directions")

FRAMES = frozenset({"relations", "everyday", "breadth"})
"""Domains of the template files that count as `frames`."""

NOISE = 0.2
"""Share of the packs with typing errors."""

TABLES = 0.2
"""Share of the crowds that are tables."""

SHORT = 20
"""Words of the longest sentences in crowds, about."""

MARKS = ("", "", "", "", "-", "-", "*", "•", "1.")
"""What is before each text of a crowd: mostly nothing."""

LENGTHS = (1, 1, 1, 1, 2, 2, 3, 3, 4, 6)
"""Records per text, drawn uniformly."""


class Mixer:
    """Draws packs of records endlessly: every record of a source once before any is repeated."""

    def __init__(self, records: Sequence[Record], library: Library, writer: Writer, rng: random.Random) -> None:
        """`records` without those from templates, which are generated for every draw."""
        self._rng = rng
        self._library = library
        self._writer = writer
        self._by_source: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            self._by_source[record.source].append(record)
        self._queues: dict[str, list[Record]] = {}
        self._orders: dict[str, list[int]] = {}
        names = [name for name in WEIGHTS if name in self._by_source or name in GENERATED]
        self._names, self._weights = names, [WEIGHTS[name] for name in names]
        self._about: dict[tuple[str, str], list[Template]] = defaultdict(list)
        for one in library.templates:
            if sum(len(piece.split()) for piece in one.pieces) + 2 * len(one.slots) <= SHORT:
                for name in dict.fromkeys(name for _, _, name in one.triples):
                    self._about[one.domain, name].append(one)

    def pack(self, max_words: int) -> list[Record]:
        """Records of one source that together have at most `max_words` words (a longer one makes a pack of its own)."""
        source = self._rng.choices(self._names, self._weights)[0]
        drawn = self.crowd() if source == "crowds" else (self._next(source) for _ in range(self._rng.choice(LENGTHS)))
        pack: list[Record] = []
        size = 0
        for record in drawn:
            size += len(record.words)
            if pack and size > max_words:
                break
            pack.append(record)
        return [noisy(record, self._rng) for record in pack] if self._rng.random() < NOISE else pack

    def crowd(self) -> Iterator[Record]:
        """2 to 12 short texts that state or deny the same one to four relations, or the rows of a table."""
        rng, count = self._rng, self._rng.randint(2, 12)
        if rng.random() < TABLES:
            yield from self._writer.write_table(*rng.choice(self._library.tables), count, rng)
            return
        seed = self._template("frames")
        while not seed.triples or seed.domain not in OWN_RELATIONS:
            seed = self._template("frames")
        names = [name for domain, name in self._about if domain == seed.domain]
        asked = [seed.triples[0][2], *rng.sample(names, rng.choice((0, 0, 1, 2, 3)))]
        group = [one for name in asked for one in self._about[seed.domain, name]] or [seed]
        if rng.random() < 0.4:  # the same few phrasings again and again, with other names
            group = rng.sample(group, min(len(group), rng.randint(1, 2)))
        mark = rng.choice(MARKS)
        for number in range(1, count + 1):
            record = self._writer.write(rng.choice(group), rng)
            yield record.behind(f"{number}" if mark == "1." else mark) if mark else record

    def _template(self, source: str) -> Template:
        """The next template of a source: every one once before any is repeated."""
        order = self._orders.setdefault(source, [])
        if not order:
            order.extend(i for i, one in enumerate(self._library.templates) if _belongs(one, source))
            self._rng.shuffle(order)
        return self._library.templates[order.pop()]

    def _next(self, source: str) -> Record:
        if source in GENERATED:
            return self._writer.write(self._template(source), self._rng)
        queue = self._queues.setdefault(source, [])
        if not queue:
            queue.extend(self._by_source[source])
            self._rng.shuffle(queue)
        return queue.pop()


def _belongs(template: Template, source: str) -> bool:
    if source == "directions":
        return template.converse
    return (template.domain in FRAMES) == (source == "frames")

"""The stream of training packs: which sources, and how many records per pack; drawn from one seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from training.noise import noisy
from training.records import Record
from training.templates import Library, Writer

WEIGHTS = {
    "multiconer2_en": 0.15,
    "btc": 0.05,
    "wnut17_train": 0.035,
    "wikigold": 0.045,
    "sec_filings": 0.01,
    "stackoverflow_ner": 0.03,
    "presidio_synth": 0.04,
    "slurp_devel": 0.015,
    "snips": 0.02,
    "fire": 0.03,
    "redocred": 0.12,
    "docred_test_ents": 0.02,
    "fewrel_val": 0.02,
    "templates": 0.135,
    "frames": 0.36,
}
"""Share of the training texts by source: largest for prose with many types and relations, smallest for chat.

`frames` are `relations-*.txt`, `breadth-*.txt` and `everyday*.txt` of `data/templates`, `templates` the other files.
"""

FRAMES = frozenset({"relations", "everyday", "breadth"})
"""Domains of the template files that count as `frames`."""

NOISE = 0.2
"""Share of the packs with typing errors."""

LENGTHS = (1, 1, 1, 2, 2, 3, 3, 4, 5, 6)
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
        names = [name for name in WEIGHTS if name in self._by_source or name in ("templates", "frames")]
        self._names, self._weights = names, [WEIGHTS[name] for name in names]

    def pack(self, max_words: int) -> list[Record]:
        """Records of one source that together have at most `max_words` words (a longer one makes a pack of its own)."""
        source = self._rng.choices(self._names, self._weights)[0]
        pack = [self._next(source)]
        size = len(pack[0].words)
        for _ in range(self._rng.choice(LENGTHS) - 1):
            record = self._next(source)
            size += len(record.words)
            if size > max_words:
                break
            pack.append(record)
        return [noisy(record, self._rng) for record in pack] if self._rng.random() < NOISE else pack

    def _next(self, source: str) -> Record:
        if source in ("templates", "frames"):
            order = self._orders.setdefault(source, [])
            if not order:
                templates = enumerate(self._library.templates)
                order.extend(i for i, one in templates if (one.domain in FRAMES) == (source == "frames"))
                self._rng.shuffle(order)
            return self._writer.write(self._library.templates[order.pop()], self._rng)
        queue = self._queues.setdefault(source, [])
        if not queue:
            queue.extend(self._by_source[source])
            self._rng.shuffle(queue)
        return queue.pop()

"""Items that take several passes, without a scheduler."""

from __future__ import annotations

import random

from checkpoints import TEXTS

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.types import Extraction, Item

LIVELY = {"seed": 1}


def long_text(seed: int, sentences: int = 40) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(TEXTS) for _ in range(sentences))


def passes_of(engine: GLiNEREngine, item: Item, seed: int | None = None) -> tuple[Extraction, list[Prepared]]:
    """The item's result, and the passes that it took; with a seed, they come back in another order."""
    prepared = engine.prepare(item)
    assert prepared.chunked is not None
    reading, draw = prepared.chunked, random.Random(seed)
    waiting: list[tuple[Prepared, Extraction]] = []
    made: list[Prepared] = []
    told = []
    while not reading.done:
        for one in reading.next_passes():
            made.append(one)
            waiting.append((one, engine.decode(engine.forward(engine.collate([one]), 1))[0]))
        if seed is None or reading.exhausted:
            draw.shuffle(waiting) if seed is not None else None
            for one, found in waiting:
                told += reading.add(one, found)
            waiting = []
    result = reading.result()
    assert told == list(result.entities)
    return result, made


def in_passes(engine: GLiNEREngine, item: Item) -> Extraction:
    return passes_of(engine, item)[0]


def many(number: int) -> dict[str, str]:
    """Labels of one to three words that the tokenizer knows."""
    words = ["person", "company", "city", "date", "human", "place", "location", "organization"]
    draw = random.Random(number)
    found: dict[str, str] = {}
    while len(found) < number:
        name = " ".join(draw.choice(words) for _ in range(draw.randint(1, 3)))
        found.setdefault(name, name)
    return found

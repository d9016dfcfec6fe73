"""Runs chunked requests without a scheduler."""

from __future__ import annotations

import random

from checkpoints import TEXTS

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.results import PassResult
from gliner_bento.tasks.extraction import Entity, Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

LIVELY = {"seed": 1}


def long_text(seed: int, sentences: int = 40) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(TEXTS) for _ in range(sentences))


def passes_of(engine: GLiNEREngine, item: Item, seed: int | None = None) -> tuple[Extraction, list[Prepared]]:
    """The item's result and its passes; with a seed, their results are added in random order."""
    prepared = engine.prepare(item)
    assert prepared.chunked is not None
    chunked, draw = prepared.chunked, random.Random(seed)
    pending: list[tuple[Prepared, PassResult]] = []
    passes: list[Prepared] = []
    final: list[Entity] = []
    while not chunked.done:
        for one in chunked.next_passes():
            passes.append(one)
            pending.append((one, engine.decode(engine.forward(engine.collate([one]), 1))[0]))
        if seed is None or chunked.exhausted:
            draw.shuffle(pending) if seed is not None else None
            for one, result in pending:
                final += chunked.add(one, result)
            pending = []
    extraction = chunked.result()
    assert final == list(extraction.entities)
    return extraction, passes


def extract_in_passes(engine: GLiNEREngine, item: Item) -> Extraction:
    return passes_of(engine, item)[0]


def many(number: int) -> dict[str, str]:
    """Labels of one to three words of the tokenizer's vocabulary."""
    words = ["person", "company", "city", "date", "human", "place", "location", "organization"]
    draw = random.Random(number)
    found: dict[str, str] = {}
    while len(found) < number:
        name = " ".join(draw.choice(words) for _ in range(draw.randint(1, 3)))
        found.setdefault(name, name)
    return found

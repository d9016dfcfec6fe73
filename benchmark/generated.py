"""Texts of a known number of words, and bodies with relations: what the benchmark sends beside the workloads of
`gliner-bento bench`."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from gliner_bento.loadtest.workload import LABEL_SETS, Body, random_text

RELATIONS = ["works at", "located in", "founded by"]

WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
"""A word as gliner's splitter counts it; a full stop is a word."""


def document(words: int, seed: int = 0) -> Body:
    """One text of exactly `words` words, in sentences of 6 to 30 words and a full stop."""
    rng = random.Random(seed)
    sentences: list[str] = []
    while words:
        length = min(rng.randint(6, 30), words - 1)
        sentence = random_text(rng, length)
        sentences.append(f"{sentence[:1].upper()}{sentence[1:]}.")
        words -= length + 1
    return {"text": " ".join(sentences), "labels": LABEL_SETS[0]}


def pieces(body: Body, words: int) -> list[Body]:
    """The text of `body` in pieces of exactly `words` words each; the remainder is dropped."""
    text, matches = body["text"], list(WORD.finditer(body["text"]))
    ends = range(words, len(matches) + 1, words)
    return [body | {"text": text[matches[end - words].start() : matches[end - 1].end()]} for end in ends]


def word_count(text: str) -> int:
    """Number of words in a text."""
    return sum(1 for _ in WORD.finditer(text))


def with_relations(bodies: Sequence[Body]) -> list[Body]:
    """The same bodies with relations."""
    return [body | {"relations": RELATIONS} for body in bodies]

"""Sentences with known entities, made from the templates of the bundled model, to measure differences in F1.

The model was trained on sentences like these, so the F1 itself is too good; only differences between runs count.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from gliner_bento.loadtest.workload import Body
from training.ontology import load_ontology
from training.templates import Writer, load_library

_ABSENT_TYPES = 4
"""Labels per sentence that do not occur in it."""
_SENTENCES_PER_PARAGRAPH = 7
_PARAGRAPH_TYPES = 12
"""Labels of paragraphs."""

Span = tuple[int, int, str]


def sentences(count: int, seed: int = 0) -> tuple[list[Body], list[set[Span]]]:
    """Bodies, and the entities of each: (start, end, label), in characters."""
    ontology = load_ontology(None)
    library = load_library(ontology)
    writer, rng = Writer(library, ontology), random.Random(seed)
    bodies: list[Body] = []
    gold: list[set[Span]] = []
    while len(bodies) < count:
        record = writer.write(rng.choice(library.templates), rng)
        types = {mention.type for mention in record.mentions}
        if None in types or not types:
            continue
        absent = rng.sample(sorted(record.pool - types), _ABSENT_TYPES)
        bodies.append({"text": " ".join(record.words), "labels": sorted({*map(str, types), *absent})})
        gold.append({_characters(record.words, m.first, m.last, str(m.type)) for m in record.mentions})
    return bodies, gold


def paragraphs(count: int, seed: int = 0) -> tuple[list[str], list[str], list[set[Span]]]:
    """Paragraphs of such sentences, their most frequent types, and the entities of these types in each paragraph."""
    bodies, gold = sentences(count * _SENTENCES_PER_PARAGRAPH, seed)
    texts = [body["text"] for body in bodies]
    types = Counter(label for spans in gold for _, _, label in spans)
    labels = [label for label, _ in types.most_common(_PARAGRAPH_TYPES)]
    of_labels = [{span for span in spans if span[2] in labels} for spans in gold]
    slices = [slice(at, at + _SENTENCES_PER_PARAGRAPH) for at in range(0, len(texts), _SENTENCES_PER_PARAGRAPH)]
    spans = [joined_spans(texts[part], of_labels[part], " ") for part in slices]
    return [" ".join(texts[part]) for part in slices], labels, spans


def joined_spans(texts: Sequence[str], spans: Sequence[set[Span]], separator: str) -> set[Span]:
    """The spans of `texts` as spans of all of them joined by `separator`."""
    starts = accumulate((len(text) + len(separator) for text in texts[:-1]), initial=0)
    return {
        (start + first, start + end, label)
        for start, of_text in zip(starts, spans, strict=True)
        for first, end, label in of_text
    }


def f1(answers: Sequence[Mapping[str, Any]], gold: Sequence[set[Span]]) -> float:
    """Exact-match micro-F1 of the entities."""
    predicted = [{(e["start"], e["end"], e["label"]) for e in answer["entities"]} for answer in answers]
    right = sum(len(one & other) for one, other in zip(predicted, gold, strict=True))
    return 2 * right / max(1, sum(map(len, predicted)) + sum(map(len, gold)))


def _characters(words: Sequence[str], first: int, last: int, label: str) -> Span:
    start = sum(len(word) + 1 for word in words[:first])
    return start, start + len(" ".join(words[first : last + 1])), label

"""Sentences with known entities, written from the bundled model's templates: what a change of precision costs in F1.

The model was trained on sentences like these, so the F1 itself flatters it; what counts here is the difference.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from gliner_bento.benchmark.workload import Body

_OTHERS = 4
"""Types asked for in vain, beside those that a sentence holds."""
_SENTENCES = 6
"""Of a paragraph."""
_TYPES = 12
"""Asked for in paragraphs."""

Span = tuple[int, int, str]


def sentences(demo: Path, count: int, seed: int = 0) -> tuple[list[Body], list[set[Span]]]:
    """Bodies, and the entities that each holds: (start, end, label), in characters.

    demo: the folder of the bundled model, with its templates.
    """
    from models.demo.train.ontology import load_ontology  # noqa: PLC0415  in the repository, not in the package
    from models.demo.train.templates import Writer, load_library  # noqa: PLC0415

    ontology = load_ontology(None)
    library = load_library(demo / "templates", demo / "train" / "names.txt", ontology)
    writer, rng = Writer(library, ontology), random.Random(seed)
    bodies: list[Body] = []
    wanted: list[set[Span]] = []
    while len(bodies) < count:
        record = writer.write(rng.choice(library.templates), rng)
        types = {mention.type for mention in record.mentions}
        if None in types or not types:
            continue
        others = rng.sample(sorted(record.pool - types), _OTHERS)
        bodies.append({"text": " ".join(record.words), "labels": sorted({*map(str, types), *others})})
        wanted.append({_characters(record.words, m.first, m.last, str(m.type)) for m in record.mentions})
    return bodies, wanted


def paragraphs(demo: Path, count: int, seed: int = 0) -> tuple[list[str], list[str], list[set[Span]]]:
    """Paragraphs of such sentences, the types that they hold most of, and the entities of these that each holds."""
    bodies, wanted = sentences(demo, count * _SENTENCES, seed)
    texts = [body["text"] for body in bodies]
    types = Counter(label for spans in wanted for _, _, label in spans)
    labels = [label for label, _ in types.most_common(_TYPES)]
    asked = [{span for span in spans if span[2] in labels} for spans in wanted]
    starts = range(0, len(texts), _SENTENCES)
    parts = [(texts[at : at + _SENTENCES], asked[at : at + _SENTENCES]) for at in starts]
    return [" ".join(part) for part, _ in parts], labels, [joined(*part, " ") for part in parts]


def joined(texts: Sequence[str], spans: Sequence[set[Span]], between: str) -> set[Span]:
    """Entities of texts, as those of all of them with `between` between two."""
    starts = accumulate((len(text) + len(between) for text in texts[:-1]), initial=0)
    return {
        (start + first, start + end, label)
        for start, of_text in zip(starts, spans, strict=True)
        for first, end, label in of_text
    }


def f1(answers: Sequence[Mapping[str, Any]], wanted: Sequence[set[Span]]) -> float:
    """Exact-match micro-F1 of the entities."""
    given = [{(e["start"], e["end"], e["label"]) for e in answer["entities"]} for answer in answers]
    right = sum(len(one & other) for one, other in zip(given, wanted, strict=True))
    return 2 * right / max(1, sum(map(len, given)) + sum(map(len, wanted)))


def _characters(words: Sequence[str], first: int, last: int, label: str) -> Span:
    start = sum(len(word) + 1 for word in words[:first])
    return start, start + len(" ".join(words[first : last + 1])), label

"""How well `graph --merge names` finds the mentions that are of one thing, on documents whose nodes are known.

    PYTHONPATH=. python docs/measurements/merge.py > docs/measurements/merge.json

The sets are tests/unit/graph/names*.txt, whose first lines say how they were made. No model reads them: the mentions
are given. A pair of mentions is right if both are of one node.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from gliner_bento.files.graph.build import MERGINGS, GraphBuilder, Merging
from gliner_bento.mentions import normalized

SETS = Path(__file__).parents[2] / "tests" / "unit" / "graph"
NAMES = ("names", "names_later")
_MARK = re.compile(r"\[\[([^:\]]+):([^|\]]+)\|([^\]]+)\]\]")


class Mention(NamedTuple):
    """A mention: number of its document, label, known node, text, and the node that it was given."""

    document: int
    label: str
    known: str
    text: str
    given: str


def documents(name: str) -> Iterator[list[tuple[str, str, str]]]:
    """Label, known node and text of the mentions of each document of a set."""
    for line in (SETS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield _MARK.findall(line)


def merged(name: str, merging: Merging) -> list[Mention]:
    """The mentions of a set with the nodes that they are merged to."""
    builder = GraphBuilder(merging)
    nodes = []
    for number, marks in enumerate(documents(name)):
        entities = [{"text": text, "label": label, "score": 1.0} for label, _, text in marks]
        nodes += [(number, mark, node) for mark, node in zip(marks, builder.add(entities, []), strict=True)]
    return [Mention(number, *mark, builder.node_id(node)) for number, mark, node in nodes]


def pairs(mentions: Iterable[Mention]) -> Iterator[tuple[Mention, Mention]]:
    """All pairs of mentions with one label, which are the only ones that may be merged."""
    return ((one, other) for one, other in combinations(mentions, 2) if one.label == other.label)


def figures(found: Iterable[tuple[Mention, Mention]]) -> dict[str, Any]:
    """Precision and recall of pairs, with their numbers."""
    counts = Counter((one.known == other.known, one.given == other.given) for one, other in found)
    right, missed, wrong = counts[True, True], counts[True, False], counts[False, True]
    return {
        "pairs": right + missed,
        "merged": right + wrong,
        "precision": round(right / max(1, right + wrong), 3),
        "recall": round(right / max(1, right + missed), 3),
    }


def measured(name: str, merging: Merging) -> dict[str, Any]:
    """Of a set: pairs in one document, those of them with different names, and pairs of all documents."""
    mentions = merged(name, merging)
    every = list(pairs(mentions))
    inside = [pair for pair in every if pair[0].document == pair[1].document]
    return {
        "documents": len({mention.document for mention in mentions}),
        "mentions": len(mentions),
        "nodes": len({mention.known for mention in mentions}),
        "in a document": figures(inside),
        "in a document, of different names": figures(
            pair for pair in inside if normalized(pair[0].text) != normalized(pair[1].text)
        ),
        "in all documents": figures(every),
    }


def faults(name: str) -> Iterator[str]:
    """The pairs inside documents that are wrong or missed, to read."""
    for one, other in pairs(merged(name, "names")):
        if (one.known == other.known) != (one.given == other.given):
            fault = "missed" if one.known == other.known else "wrong"
            yield f"{fault}: {one.document} {one.text} | {other.document} {other.text}"


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.stdout.write("\n".join(faults(sys.argv[1])) + "\n")
    else:
        results = {name: {merging: measured(name, merging) for merging in MERGINGS} for name in NAMES}
        sys.stdout.write(json.dumps(results, indent=1) + "\n")

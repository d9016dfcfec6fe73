"""Recall and precision by kind of personal data: recognizers alone, the model alone, and both as /analyze answers.

    PYTHONPATH=. python docs/measurements/recognizers.py http://localhost:3000 > docs/measurements/recognizers.json

The sets are tests/unit/privacy/recognizers/*.txt, whose first lines say how they were made. A finding is right if its
borders and its kind are.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx

from gliner_bento.privacy.recognizers.find import find
from gliner_bento.privacy.recognizers.labels import PRESIDIO_LABELS

Spans = set[tuple[int, int, str]]

SETS = Path(__file__).parents[2] / "tests" / "unit" / "privacy" / "recognizers"
KINDS = (
    *("CREDIT_CARD", "IBAN_CODE", "EMAIL_ADDRESS", "US_SSN", "IP_ADDRESS", "PHONE_NUMBER", "MAC_ADDRESS", "URL"),
    *("CRYPTO", "US_PASSPORT", "US_DRIVER_LICENSE", "US_BANK_NUMBER", "MEDICAL_RECORD_NUMBER"),
    *("US_HEALTH_INSURANCE_MEMBER_ID", "DATE_OF_BIRTH"),
)
_BATCH = 32
_MARK = re.compile(r"\[\[([A-Z_]+) (.*?)\]\]")


def sentences(name: str) -> Iterator[tuple[str, Spans]]:
    """Each text of a set, and where its personal data is."""
    for line in (SETS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("# "):
            text, copied = "", 0
            spans: Spans = set()
            for mark in _MARK.finditer(line):
                text += line[copied : mark.start()]
                spans.add((len(text), len(text) + len(mark[2]), mark[1]))
                text, copied = text + mark[2], mark.end()
            yield text + line[copied:], spans


def by_form(texts: list[str]) -> list[Spans]:
    """What recognizers find."""
    return [{(one.start, one.end, one.entity) for one in find(text)} for text in texts]


def measured(
    name: str, found: Callable[[list[str]], Iterable[Spans]], kinds: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    """Of each kind in a set: how many there are, recall, precision."""
    right, missed, wrong = Counter[str](), Counter[str](), Counter[str]()
    texts, marks = zip(*sentences(name), strict=True)
    for marked, seen in zip(marks, found(list(texts)), strict=True):
        for counts, spans in ((right, marked & seen), (missed, marked - seen), (wrong, seen - marked)):
            counts.update(kind for *_, kind in spans if not kinds or kind in kinds)
    return {
        kind: {
            "number": right[kind] + missed[kind],
            "recall": round(right[kind] / max(1, right[kind] + missed[kind]), 2),
            "precision": round(right[kind] / max(1, right[kind] + wrong[kind]), 2),
        }
        for kind in sorted({*right, *missed, *wrong})
    }


def rows(figures: dict[str, Any]) -> str:
    """Of the table of docs/recognizers.md: the kinds of a set with four examples or more."""
    lines = []
    for kind, alone in figures["recognizers"].items():
        if alone["number"] >= 4:
            three = (alone, *(figures[who][kind] for who in ("model", "both")))
            shown = (f"{one['recall']:.2f}, {one['precision']:.2f}" for one in three)
            lines.append(f"| `{kind}` | {alone['number']} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(url: str) -> None:
    """Write the figures to standard output."""
    with httpx.Client(base_url=url, timeout=600) as client:

        def by_model(texts: list[str]) -> Iterator[Spans]:
            labels = {kind: PRESIDIO_LABELS[kind] for kind in KINDS}
            for at in range(0, len(texts), _BATCH):
                body = {"texts": texts[at : at + _BATCH], "labels": labels, "threshold": 0.5}
                for one in client.post("/v1/extract/batch", json=body).raise_for_status().json()["results"]:
                    yield {(one["start"], one["end"], one["label"]) for one in one["result"]["entities"]}

        def by_both(texts: list[str]) -> Iterator[Spans]:
            for at in range(0, len(texts), _BATCH):
                body = {"text": texts[at : at + _BATCH], "language": "en", "entities": KINDS, "score_threshold": 0.5}
                for found in client.post("/analyze", json=body).raise_for_status().json():
                    yield {(one["start"], one["end"], one["entity_type"]) for one in found}

        figures = {
            name: {
                "recognizers": measured(name, by_form),
                "model": measured(name, by_model, KINDS),
                "both": measured(name, by_both, KINDS),
            }
            for name in ("sentences", "presidio", "documents")
        }
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

"""The requests of the soak: all routes, short and long texts, with relations and adapters; and how answers compare."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LABELS = ["person", "organization", "location", "date"]
RELATIONS = ["works at", "located in", "founded"]
ADAPTERS = ("soak-0", "soak-1")
SCORE_TOLERANCE = 1e-3

_SENTENCES = (
    "{person} founded {company} in {city} in {year}.",
    "In {year}, {person} left {company} and moved to {city}.",
    "{company} opened an office in {city}, where {person} works.",
    "{person} and {other} met in {city} before they joined {company}.",
)
_PARTS = {
    "person": ("Bill Gates", "Marie Curie", "Tim Cook", "Ada Lovelace"),
    "other": ("Charles Babbage", "Grace Hopper", "Alan Turing"),
    "company": ("Microsoft", "Apple", "Siemens", "Toyota"),
    "city": ("Paris", "London", "Redmond", "Warsaw", "Kyoto"),
    "year": ("1975", "1911", "2004", "1998"),
}


@dataclass(frozen=True, slots=True)
class SoakRequest:
    """A valid request; `kind` groups it in the result."""

    kind: str
    path: str
    body: dict[str, Any]

    @property
    def payload(self) -> bytes:
        """The body as JSON."""
        return json.dumps(self.body).encode()


def soak_requests(count: int, seed: int = 0, *, adapters: Sequence[str] = ADAPTERS) -> list[SoakRequest]:
    """`count` different requests in the mixture of the soak."""
    rng = random.Random(seed)
    return [_request(rng, adapters) for _ in range(count)]


def predictions(request: SoakRequest, content: bytes) -> Any:
    """What an answer predicts, for `same`. Raises ValueError, KeyError or TypeError if it is an error."""
    if request.kind == "stream":
        lines = [json.loads(line) for line in content.splitlines()]
        return _of_one({"entities": [line["entity"] for line in lines[:-1]], "relations": lines[-1]["relations"]})
    answer = json.loads(content)
    if request.kind == "batch":
        return [_of_one(result["result"]) for result in answer["results"]]
    return _of_one(answer)


def same(one: Any, other: Any) -> bool:
    """Whether two predictions are equal, scores to within `SCORE_TOLERANCE`."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= SCORE_TOLERANCE
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _of_one(answer: dict[str, Any]) -> list[Any]:
    entities = [[e["start"], e["end"], e["label"], e["score"]] for e in answer["entities"]]
    relations = [
        [r["head"]["start"], r["tail"]["start"], r["relation"], r["score"]] for r in answer.get("relations") or []
    ]
    return [sorted(entities), sorted(relations)]


def _request(rng: random.Random, adapters: Sequence[str]) -> SoakRequest:
    kind = rng.choices(["short", "relations", "mixed", "long", "batch", "stream", "gliner", "adapter"],
                       [30, 15, 20, 3, 5, 7, 10, 10])[0]  # fmt: skip
    body: dict[str, Any] = {"text": _text(rng, rng.randint(1, 3)), "labels": LABELS}
    if kind == "relations":
        body["relations"] = RELATIONS
    elif kind == "mixed":
        body |= {"text": _text(rng, rng.randint(3, 15)), "labels": LABELS[: rng.randint(1, 4)]}
    elif kind == "long":
        body["text"] = _text(rng, 80)
    elif kind == "batch":
        body = {"texts": [_text(rng, rng.randint(1, 3)) for _ in range(rng.randint(2, 8))], "labels": LABELS}
    elif kind == "stream":
        body |= {"text": _text(rng, rng.randint(2, 20)), "relations": RELATIONS}
    elif kind == "adapter":
        body["adapter_id"] = rng.choice(adapters)
    paths = {"batch": "/v1/extract/batch", "stream": "/v1/extract/stream", "gliner": "/gliner"}
    return SoakRequest(kind, paths.get(kind, "/v1/extract"), body)


def _text(rng: random.Random, sentences: int) -> str:
    parts = {name: values for name, values in _PARTS.items()}
    return " ".join(
        rng.choice(_SENTENCES).format(**{name: rng.choice(values) for name, values in parts.items()})
        for _ in range(sentences)
    )

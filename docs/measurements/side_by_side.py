"""Send unusual requests to any server with gliner.serve's API: `python side_by_side.py URL`, e.g. .../gliner."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

SENTENCE = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
GOOD = {
    "text": SENTENCE,
    "labels": ["person", "organization", "date", "location"],
    "relations": ["founded", "founded in", "headquartered in"],
}


def behaviour(ask: Callable[[Any], httpx.Response]) -> dict[str, str]:
    """Status and beginning of the body of each response, by request."""
    odd: dict[str, Any] = {
        "no relations asked": {key: GOOD[key] for key in ("text", "labels")},
        "malformed JSON": b'{"text":',
        "no text": {"labels": GOOD["labels"]},
        "a misspelt field": GOOD | {"thresold": 0.9},
        "threshold 2": GOOD | {"threshold": 2},
        "20,000 words before the sentence": GOOD | {"text": "word " * 20_000 + SENTENCE},
    }
    answers = {name: ask(body) for name, body in odd.items()}
    shown = {name: f"{answer.status_code} {answer.text[:90]}" for name, answer in answers.items()}
    for name, bad in (("a text that is a number", {"text": 5}), ("an unknown adapter", {"adapter_id": "nobody"})):
        bodies = [GOOD | {"text": f"{SENTENCE} {i}"} | (bad if i == 7 else {}) for i in range(16)]
        with ThreadPoolExecutor(16) as pool:
            shown[f"{name}, with 15 good requests"] = counted(pool.map(ask, bodies))
    return shown


def counted(answers: Any) -> str:
    """The number of responses per status."""
    statuses = Counter(answer.status_code for answer in answers)
    return ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))


def main(url: str) -> None:
    """Print the responses as JSON."""
    with httpx.Client(timeout=60, limits=httpx.Limits(max_connections=64)) as client:

        def ask(body: Any) -> httpx.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return client.post(url, content=content, headers={"Content-Type": "application/json"})

        sys.stdout.write(json.dumps(behaviour(ask), indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

"""A served model in bfloat16 answers byte for byte the same, one request at a time and at concurrency 64.

INVARIANCE_REQUESTS sets the number of requests, 120 by default; 2000 is the full run.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmark.server import running_server
from gliner_bento.loadtest.workload import skewed
from gliner_bento.settings import PROJECT_ROOT

REQUESTS = int(os.environ.get("INVARIANCE_REQUESTS", "120"))
CONCURRENCY = 64
RELATIONS = ["founded", "works for", "lives in", "located in"]


@pytest.fixture
def bfloat16_server(tmp_path: Path) -> Iterator[str]:
    """The bundled model in bfloat16, also where the processor only emulates it."""
    command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", "{port}", "--dtype", "bfloat16"]
    command += ["--max-queue-wait-s", "3600", "--request-timeout-s", "600"]  # a slow machine is no failure
    with running_server(command, cwd=PROJECT_ROOT, log=tmp_path / "log") as url:
        yield url


def bodies() -> list[dict[str, Any]]:
    """Requests with texts, labels, relations and options of their own; low thresholds show more scores."""
    draw = random.Random(13)
    return [
        {
            "text": " ".join(body["text"].split()[: draw.choice((3, 8, 20, 60, 150))]),
            "labels": draw.sample(body["labels"], draw.randint(1, len(body["labels"]))),
            "relations": draw.sample(RELATIONS, draw.randint(0, 2)),
            "threshold": draw.choice((0.1, 0.3, 0.5)),
            "flat_ner": draw.random() < 0.5,
            "multi_label": draw.random() < 0.3,
        }
        for body in skewed(REQUESTS, seed=13)
    ]


def test_answers_are_the_same_bytes_alone_and_under_load(bfloat16_server: str) -> None:
    with httpx.Client(base_url=bfloat16_server, timeout=600, limits=httpx.Limits(max_connections=CONCURRENCY)) as http:
        card = http.get("/v1/model").json()
        assert (card["dtype"], card["batch_invariant"]) == ("bfloat16", True)

        def answered(body: dict[str, Any]) -> str:
            response = http.post("/v1/extract", json=body)
            assert response.status_code == 200, response.text
            answer = response.json()
            return json.dumps({key: answer[key] for key in ("entities", "relations")})

        requests = bodies()
        alone = [answered(body) for body in requests]
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            together = list(pool.map(answered, requests))
    assert together == alone
    assert sum(len(json.loads(answer)["entities"]) for answer in alone) > REQUESTS

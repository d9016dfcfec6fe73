"""The service that people write around gliner2: FastAPI, a request a call of the model in a thread.

`uvicorn benchmark.jobs.gliner2_service:app`, with BENCH_MODEL.
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI
from gliner2 import AutoExtractor

from benchmark.jobs.gliner2_own import extract

model = AutoExtractor.from_pretrained(os.environ["BENCH_MODEL"])


def readyz() -> None:
    """The model is loaded."""


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """gliner2's answer to a body of `/v1/extract`."""
    return extract(model, [body])[0]


app = FastAPI()
app.add_api_route("/readyz", readyz)
app.add_api_route("/extract", answer, methods=["POST"])

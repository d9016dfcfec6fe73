"""What `/v1/redact` finds by default, with the bundled model, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from benchmark.jobs import run_job
from gliner_bento.asgi import create_app

_BATCH = 32


def main(texts: list[str]) -> dict[str, Any]:
    """For each text, the spans that are replaced."""
    return {"spans": asyncio.run(_spans(texts))}


async def _spans(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    app = create_app()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ours", timeout=600)
    spans: list[list[tuple[int, int]]] = []
    async with app.router.lifespan_context(app), client:
        for at in range(0, len(texts), _BATCH):
            response = await client.post("/v1/redact/batch", json={"texts": texts[at : at + _BATCH]})
            results = response.raise_for_status().json()["results"]
            spans += [[(one["start"], one["end"]) for one in result["result"]["entities"]] for result in results]
    return spans


if __name__ == "__main__":
    run_job(main)

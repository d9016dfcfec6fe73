"""Measures one running server: closed loops at several concurrencies, or one open loop at a rate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx

from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import Run, TimedResponse, authorization, closed_loop, open_loop
from gliner_bento.loadtest.machine import provenance

BUILD = Path("build") / "bench"
_BODY_COUNT = 256
_WARM_UP_S = 5.0
_STATUS_TIMEOUT_S = 30.0


def measure_server(
    url: str,
    out: Path | None,
    *,
    name: str,
    concurrencies: Sequence[int],
    rate: float | None,
    seconds: float,
    api_key: str | None = None,
) -> tuple[Path, list[dict[str, Any]]]:
    """Measure the gliner-bento server at `url` under the workload `name`, for `seconds` at each of `concurrencies`, or
    at `rate` (requests/s) if given. Writes `server.json` into `out`; returns its path, and the measured points.

    Raises ValueError for an unknown workload, and if there is no gliner-bento server at `url`.
    """
    if name not in workload.WORKLOADS:
        raise ValueError(f"no workload {name}; there are {', '.join(workload.WORKLOADS)}")
    card = _model_card(url, api_key)
    bodies = workload.WORKLOADS[name](_BODY_COUNT, 0)
    texts, payloads, route = [body["text"] for body in bodies], workload.encoded(bodies), f"{url}/v1/extract"
    closed_loop(route, payloads, concurrency=max(concurrencies), seconds=min(_WARM_UP_S, seconds), api_key=api_key)
    points: list[dict[str, Any]] = []

    def add_point(run: Run, **load: Any) -> None:
        agreement = {"wrong": offset_errors(run.replies, texts)}
        points.append({"server": card["model"], "section": name, **load, **run.summary(), "agreement": agreement})

    if rate:
        add_point(open_loop(route, payloads, rate=rate, seconds=seconds, api_key=api_key), concurrency=0, rate=rate)
    else:
        for concurrency in concurrencies:
            run = closed_loop(route, payloads, concurrency=concurrency, seconds=seconds, api_key=api_key)
            add_point(run, concurrency=concurrency, rate=0.0)
    file = _written(new_folder(out), provenance() | {"server": card, "workload": name, "points": points})
    return file, points


def offset_errors(replies: Iterable[TimedResponse], texts: Sequence[str]) -> int:
    """Number of responses with status 200 in which an entity's offsets do not match its text. texts: by body index."""
    count = 0
    for reply in replies:
        if reply.status == "200":
            entities = json.loads(reply.content)["entities"]
            text = texts[reply.body_index]
            count += any(text[entity["start"] : entity["end"]] != entity["text"] for entity in entities)
    return count


def new_folder(out: Path | None) -> Path:
    """Create and return `out`; default: `build/bench/<time>`."""
    folder = out or BUILD / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _written(folder: Path, data: dict[str, Any]) -> Path:
    file = folder / "server.json"
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return file


def _model_card(url: str, api_key: str | None) -> dict[str, Any]:
    """The response of `/v1/model`. Raises ValueError if there is none."""
    try:
        response = httpx.get(f"{url}/v1/model", headers=authorization(api_key), timeout=_STATUS_TIMEOUT_S)
        content: dict[str, Any] = response.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, json.JSONDecodeError) as error:
        raise ValueError(f"no gliner-bento server at {url}: {str(error) or type(error).__name__}") from error
    return content

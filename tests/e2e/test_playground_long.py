"""The playground with a text of 100,000 words and 20,000 entities stays fluid: CPU time of the page's tasks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Page, chromium, executable
from on_a_socket import on_a_socket

sys.path += [str(Path(__file__).parents[1] / "unit"), str(Path(__file__).parents[1] / "unit" / "gateway")]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(executable() is None, reason="Chromium is not installed")]

TEXT = "".join("we went on to Oslo, " if number % 40 else "we went on to Oslo.\n" for number in range(20_000))
LONGEST_MS = 200.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The gateway over a replica without a model, which finds `Oslo`, in a thread; with uvicorn's own HTTP protocol,
    because other tests may have set another one as its default."""
    from doubles.memory_replica import MemoryReplica
    from gateway_options import OPTIONS

    from gliner_bento.gateway.app import GatewayApp

    app = GatewayApp(replace(OPTIONS, max_text_chars=10**6, max_body_bytes=10**7, max_entities=40_000))
    app.bind(MemoryReplica(pass_words=200))
    with on_a_socket(app, http="httptools") as url:
        yield url


class Trace:
    """Tasks of the page's main thread, by Chromium's tracing."""

    def __init__(self, page: Page) -> None:
        self._page, self._events, self._note = page, list[dict[str, Any]](), page._note
        self._complete = False
        page._note = self._take
        config = {"includedCategories": ["toplevel", "devtools.timeline"], "traceBufferSizeInKb": 400_000}
        page.command("Tracing.start", traceConfig=config, transferMode="ReportEvents")

    def tasks(self) -> list[tuple[float, float]]:
        """CPU and wall time of each in ms, the longest first."""
        self._page.command("Tracing.end")
        while not self._complete:
            self._page._note(self._page._receive())
        main = {
            (one["pid"], one["tid"])
            for one in self._events
            if one["name"] == "thread_name" and one["args"].get("name") == "CrRendererMain"
        }
        runs = [
            (one.get("tdur", 0) / 1000, one.get("dur", 0) / 1000)
            for one in self._events
            if one["name"].endswith("RunTask") and (one["pid"], one["tid"]) in main
        ]
        return sorted(runs, reverse=True)

    def _take(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Tracing.dataCollected":
            self._events += event["params"]["value"]
        elif event.get("method") == "Tracing.tracingComplete":
            self._complete = True
        else:
            self._note(event)


def test_no_task_of_a_long_text_is_long(url, tmp_path):
    with chromium(tmp_path) as page:
        page.open(f"{url}/playground")
        page.wait("document.querySelector('#status').textContent.includes(' ms')")
        trace = Trace(page)
        page.evaluate(
            f"(() => {{ const text = document.querySelector('#text'); text.value = {json.dumps(TEXT)}; "
            "text.dispatchEvent(new Event('input')); })()"
        )
        page.wait("document.querySelector('#tab-entities .number').textContent.replace(/\\D/g, '') >= 20000")
        page.wait("document.querySelector('#status').textContent.includes(' ms')")
        for part in range(1, 8):
            page.evaluate(f"document.querySelector('#document').scrollTop = {part} * 4000")
            rest(page)
        for score in (0.6, 0.9, 1, 0.5):
            page.evaluate(
                f"(() => {{ const slider = document.querySelector('#filters input'); slider.value = {score}; "
                "slider.dispatchEvent(new Event('input')); })()"
            )
            rest(page)
        for _ in range(2):
            page.click(".legend button")
            rest(page)
        for _ in range(2):
            page.click("th button")
            rest(page)
        for name in ("relations", "graph", "code", "entities"):
            page.click(f"#tab-{name}")
            rest(page)
        page.evaluate("document.querySelector('#text').focus()")
        page.type("Hello ")
        rest(page)
        tasks = trace.tasks()
        shown = ", ".join(f"{cpu:.0f} ({wall:.0f})" for cpu, wall in tasks[:8])
        print(f"longest tasks, CPU (wall) ms: {shown}")  # noqa: T201
        assert len(tasks) > 100
        assert tasks[0][0] < LONGEST_MS
        assert page.messages == []


def rest(page: Page) -> None:
    """Until the page has drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")

"""`/v1/documents`: which documents are read, what is refused and why, and how many wait."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest
from gateway_options import OPTIONS
from replica_calls import until

from gliner_bento.errors import NotReady, QueueFull, install_hint
from gliner_bento.gateway.fair_jobs import FairJobs
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.helper_process import HelperProcess
from reliability.document_files import encrypted_pdf, excel, mail, pdf

LARGE = replace(OPTIONS, max_body_bytes=2**20, max_text_chars=200)
PDF = "application/pdf"


@pytest.fixture(scope="module")
def reading() -> Callable[..., httpx.Response]:
    """Sends documents to one gateway, whose process reads them all."""
    from doubles.memory_replica import MemoryReplica

    from gliner_bento.gateway.app import GatewayApp

    app = GatewayApp(LARGE)
    app.bind(MemoryReplica())

    def send(content: bytes, name: str | None, kind: str = "application/octet-stream") -> httpx.Response:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
        params = {} if name is None else {"name": name}
        headers = {"Content-Type": kind} if kind else {}
        return asyncio.run(client.post("/v1/documents", content=content, params=params, headers=headers))

    return send


@pytest.mark.parametrize(("name", "kind"), [("report.PDF", ""), (None, "application/pdf; version=1.4")])
def test_the_pages_of_a_document_are_its_records(reading, name, kind):
    answer = reading(pdf([["Ada Lovelace"], ["Bob"]], comment="by Eve"), name, kind).json()
    nowhere = {"sheet": None, "cell": None, "attachment": None}
    assert answer["records"] == [
        {"text": "Ada Lovelace", "part": "page", "page": 1, **nowhere},
        {"text": "by Eve", "part": "comment", "page": 1, **nowhere},
        {"text": "Bob", "part": "page", "page": 2, **nowhere},
    ]
    assert answer["not_read"] == {}
    assert answer["request_id"]


def test_cells_and_attachments_have_their_places_and_other_files_their_reason(reading):
    content = mail({"people.xlsx": excel({"B2": "Ada"}), "photo.png": b"\x89PNG"})
    answer = reading(content, "visit.eml").json()
    (cell,) = (one for one in answer["records"] if one["text"] == "Ada" and one["part"] == "cell")
    assert [cell[name] for name in ("attachment", "sheet", "cell")] == ["people.xlsx", "People", "B2"]
    assert answer["not_read"].keys() == {"photo.png"}


def test_html_is_read_in_the_charset_of_the_request(reading):
    content = "<p>Zoë".encode("latin-1")
    assert reading(content, "a.html", "text/html; charset=ISO-8859-1").json()["records"][0]["text"] == "Zoë"
    assert reading(b"<p>\x80 5", "a.html", "text/html; charset=iso-8859-1").json()["records"][0]["text"] == "\u20ac 5"
    assert reading("<p>Zoë".encode(), "a.html", "text/html; charset=").json()["records"][0]["text"] == "Zoë"
    odd = ("charset*=x; charset*0=y", f"charset*{'9' * 5000}=x", "charset*=utf-8''%ff")
    for kind in ("text/html", "text/html; charset=nothing", *(f"text/html; {parameters}" for parameters in odd)):
        error = reading(content, "a.html", kind).json()["error"]
        assert error["code"] == "invalid_field"
        assert "name its encoding" in error["message"]


@pytest.mark.parametrize(
    ("content", "name", "kind", "status", "param", "message"),
    [
        (b"Ada", None, "", 422, "name", "name: is missing: the name of the document (?name=report.pdf)"),
        (b"Ada", "a.txt", "", 415, "name", "name: ends in none of .pdf, .docx, .xlsx, .html, .htm, .eml"),
        (b"Ada", "a.pdf", "application/json", 415, None, "send the document itself as the body"),
        (b"Ada", "a.pdf", "multipart/form-data; boundary=b", 415, None, "send the document itself as the body"),
        (b"", "a.pdf", "", 422, "body", "body: is empty"),
        (b"Ada", "a.pdf", "", 422, "body", "body: damaged, or no PDF"),
        (pdf([["Ada"]]), "a.html", PDF, 422, "body", "body: is a PDF, and not what its suffix says"),
        (encrypted_pdf("secret"), "a.pdf", PDF, 422, "body", "body: encrypted"),
        (pdf([["a" * 201]]), "a.pdf", PDF, 413, "body", "body: has more than 200 characters"),
        (b" " * (2**20 + 1), "a.pdf", PDF, 413, None, "the body has more than 1048576 bytes (max_body_bytes)"),
    ],
)
def test_what_is_refused(reading, content, name, kind, status, param, message):
    response = reading(content, name, kind)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param)
    assert error["message"].startswith(message)


def test_without_the_extra_documents_are_refused_before_they_arrive(client, monkeypatch):
    monkeypatch.setattr("gliner_bento.documents.base.PACKAGES", ("no_such_package",))

    async def body():
        raise AssertionError("the body is read")
        yield

    response = asyncio.run(client.post("/v1/documents?name=a.pdf", content=body()))
    assert (response.status_code, response.json()["error"]["code"]) == (501, "not_supported")
    assert install_hint("documents") in response.json()["error"]["message"]


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith(("documents", "regular expressions"))}


def join(ending: set[threading.Thread]) -> None:
    for thread in ending:
        thread.join(60)
        assert not thread.is_alive()


def jobs_of(process: HelperProcess) -> FairJobs:
    return FairJobs("documents", process, timeout_s=60, charged_s=1)


def test_a_tenants_documents_wait_in_bounded_number_and_others_are_still_read(replica):
    before, gateway = threads(), Gateway(replica, LARGE)
    documents = gateway.documents
    content, ada, bob = pdf([["Ada"]]), Tenant("ada"), Tenant("bob")

    async def scene() -> None:
        assert threads() == before, "the thread starts with the first document"
        await documents.read(ada, content, "a.pdf")
        pid = documents._process.pid
        if sys.platform == "linux":  # it is the first one that is killed if the memory does not suffice
            assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = [asyncio.create_task(documents.read(ada, content, "a.pdf")) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(QueueFull, match="too many documents wait"):
                documents.check(ada, "a.pdf")
            for number in range(12):  # all places are taken
                tenant = Tenant(f"other {number % 3}")
                waiting.append(asyncio.create_task(documents.read(tenant, content, "a.pdf")))
                await asyncio.sleep(0)
            documents.check(bob, "a.pdf")
            waiting.append(asyncio.create_task(documents.read(bob, content, "a.pdf")))
            await asyncio.sleep(0)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [one.records[0].text for one in await asyncio.gather(*waiting)] == ["Ada"] * 17
        documents.check(ada, "a.pdf")
        await gateway.aclose()

    asyncio.run(scene())
    join(threads() - before)
    assert documents._process.pid is None


def test_what_a_dropped_job_holds_is_freed_while_another_one_runs():
    class Held:
        """Stands for a document in memory."""

    async def scene() -> None:
        jobs, tenant = jobs_of(HelperProcess("unused")), Tenant("ada")
        started, go = threading.Event(), threading.Event()

        def first() -> bool:
            started.set()
            return go.wait(60)

        held = Held()
        running = asyncio.create_task(jobs.run(tenant, first, "tests end"))
        dropped = asyncio.create_task(jobs.run(tenant, lambda held=held: held, "tests end"))
        gone = weakref.ref(held)
        del held
        await asyncio.to_thread(started.wait)
        dropped.cancel()
        await asyncio.wait([dropped])
        del dropped
        gc.collect()
        assert gone() is None
        go.set()
        assert await running

    asyncio.run(scene())


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_job_holds_is_freed_when_it_ends(fails):
    class Held:
        """Stands for a document in memory."""

    async def scene() -> None:
        jobs, held = jobs_of(HelperProcess("unused")), Held()
        gone = weakref.ref(held)

        def job(held: Held) -> Held:
            if fails:
                raise ValueError
            return held

        task = asyncio.create_task(jobs.run(Tenant("ada"), partial(job, held), "tests end"))
        del held
        await asyncio.wait([task])
        assert isinstance(task.exception(), ValueError) == fails
        del task
        await until(lambda: gone() is None)

    gc.disable()
    try:
        asyncio.run(scene())
    finally:
        gc.enable()


def test_a_document_whose_caller_has_left_ends_and_the_next_one_is_read(replica):
    async def scene() -> None:
        gateway = Gateway(replica, LARGE)
        documents, content = gateway.documents, pdf([["Ada"]])
        await documents.read(Tenant("ada"), content, "a.pdf")
        stopped = documents._process.pid
        os.kill(stopped, signal.SIGSTOP)
        left = asyncio.create_task(documents.read(Tenant("ada"), content, "a.pdf"))
        await until(documents._process._lock.locked)
        left.cancel()
        await asyncio.wait([left])
        assert (await documents.read(Tenant("bob"), content, "a.pdf")).records[0].text == "Ada"
        assert documents._process.pid != stopped
        await gateway.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize("end", ["leave", "close"])
def test_a_job_that_has_ended_starts_no_process(end):
    before, process = threads(), HelperProcess("gliner_bento.documents.document_process")

    async def scene() -> None:
        jobs, begun, go = jobs_of(process), threading.Event(), threading.Event()
        raised: list[Exception] = []

        def job() -> None:
            begun.set()
            go.wait(60)
            try:
                process.started()
            except OSError as error:
                raised.append(error)
                raise

        task = asyncio.create_task(jobs.run(Tenant("ada"), job, "tests end"))
        await asyncio.to_thread(begun.wait)
        if end == "leave":
            task.cancel()
            await asyncio.wait([task])
        else:
            jobs.close()
        go.set()
        await until(lambda: bool(raised))
        if end == "leave":
            assert (await jobs.run(Tenant("bob"), process.started, "tests end")).pid == process.pid
            jobs.close()
        else:
            for late in (task, jobs.run(Tenant("bob"), process.started, "tests end")):
                with pytest.raises(NotReady):
                    await late

    asyncio.run(scene())
    join(threads() - before)
    assert process.pid is None


def test_the_process_for_expressions_ends_with_the_gateway(replica):
    before, gateway = threads(), Gateway(replica, LARGE)

    async def scene() -> None:
        assert await gateway.expressions.spans(Tenant("ada"), [("A", 0)], ["Ada"]) == [[[(0, 1)]]]
        assert gateway.expressions._process.pid
        await gateway.aclose()

    asyncio.run(scene())
    join(threads() - before)
    assert gateway.expressions._process.pid is None

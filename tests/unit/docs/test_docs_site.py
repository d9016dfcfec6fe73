"""The documentation's site: its sources, the built pages, and how a server serves them."""

from __future__ import annotations

import asyncio
import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from doubles.memory_replica import MemoryReplica
from on_a_socket import on_a_socket

from gliner_bento.gateway import documentation
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from tools import docs_site
from tools.docs_site.reference import command_line_page, http_api_page, settings_table

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("zensical", reason="installed by `make docs`")
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docs_site, "WORK", folder / "work")
        assert docs_site.build(folder / "docs") == 0
    return folder / "docs"


def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> httpx.AsyncClient:
    endpoints = documentation.endpoints(folder)
    monkeypatch.setattr(documentation, "endpoints", lambda: endpoints)
    app = GatewayApp(Settings().view(GatewayOptions))
    app.bind(MemoryReplica())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def ask(client: httpx.AsyncClient, path: str, **headers: str) -> httpx.Response:
    return asyncio.run(client.get(path, headers=headers))


def small_site(folder: Path) -> Path:
    folder.mkdir()
    (folder / "index.html").write_text("<script>one()</script><p>Start</p><script src='app.js'></script>")
    (folder / "app.js").write_text("two()")
    return folder


def test_links_follow_a_page_and_what_it_links_to():
    page = PROJECT_ROOT / "docs" / "migrate" / "presidio.md"
    text = "[a](../errors.md#internal) [b](../../README.md) [c](../../examples/redact.py) [d](../decisions) [e](#x)\n"
    assert docs_site.rewritten(text, page) == (
        "[a](../errors.md#internal) [b](../overview.md) [c](../examples/redact.py.md) [d](../decisions/index.md) "
        "[e](#x)\n"
    )
    code = "```\n[b](../../README.md)\n```\n`[b](../../README.md)`\n"
    assert docs_site.rewritten(code, page) == code


def test_a_page_of_the_site_has_no_pictures_of_other_hosts():
    text = (
        "# Name\n\n[![a](https://a.example/a.svg)](https://a.example)\n[![b](https://b.example/b.svg)](x.md)\n\nText\n"
    )
    assert docs_site.rewritten(text, PROJECT_ROOT / "README.md") == "# Name\n\nText\n"
    pages = [page for page in docs_site.sources() if page.suffix == ".md"]
    texts = (docs_site.rewritten(page.read_text(encoding="utf-8"), page) for page in pages)
    assert [text for text in texts if re.search(r"!\[[^]]*\]\(https?:", text)] == []


def test_the_reference_has_every_route_and_command():
    api = http_api_page()
    assert "\n### `POST /v1/extract/batch`\n" in api
    assert "[`invalid_field`](../errors.md#invalid_field)" in api
    assert "| `threshold` | number or null | Lowest score of an entity, 0 to 1." in api
    commands = command_line_page()
    for words in ("serve", "extract", "adapters put"):
        assert f"\n## `gliner-bento {words}`\n\n```text\nusage: gliner-bento {words} " in commands


def test_the_site_is_built_before_what_contains_it():
    for target, builder in (
        ("dist", "tools/distributions "),
        ("bento", "bentoml build"),
        ("image", "deploy/docker/build "),
    ):
        command = ["make", "--dry-run", "--no-print-directory", target]
        ran = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
        assert 0 < ran.stdout.index("tools.docs_site build") < ran.stdout.index(builder)


def test_all_pages_are_in_the_site_and_reachable(site):
    pages = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    assert {"index.html", "overview.html", "reference/http-api.html", "decisions/index.html"} <= pages
    found, waiting = set(), ["index.html"]
    while waiting:
        page = waiting.pop()
        if page not in found:
            found.add(page)
            links = re.findall(r'<a[^>]* href="([^":#?]+\.html)', (site / page).read_text(encoding="utf-8"))
            folder = (site / page).parent
            waiting += [(folder / link).resolve().relative_to(site.resolve()).as_posix() for link in links]
    assert found == pages


def test_pages_load_nothing_from_elsewhere_and_all_that_they_load_exists(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|source|iframe)[^>]* src="([^"]*)"', text)
        loaded += re.findall(r'<link[^>]* href="([^"]*)"', text)
        assert len(loaded) > 3
        assert [one for one in loaded if not (page.parent / one.partition("#")[0]).exists()] == [], page.name


def test_the_scheme_follows_the_system_until_the_reader_chooses_one(site):
    first = re.search(r'<input class="md-option"[^>]*>', (site / "index.html").read_text(encoding="utf-8"))
    assert first
    assert 'data-md-color-media="(prefers-color-scheme)"' in first[0]


def test_a_built_page_may_run_its_own_scripts(site, monkeypatch):
    answer = ask(served(site, monkeypatch), "/docs/concepts.html")
    policy = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    scripts = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    assert scripts
    for script in scripts:
        assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy["script-src"]
    assert not re.search(r"<[^>]+ on\w+=", answer.text)


def test_the_docs_are_served_with_a_policy_of_their_own(tmp_path, monkeypatch):
    client = served(small_site(tmp_path / "site"), monkeypatch)
    moved = ask(client, "/docs")
    assert (moved.status_code, moved.headers["location"]) == (307, "docs/index.html")
    for path in ("/docs/", "/docs/index.html"):
        page = ask(client, path)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = dict(rule.strip().split(" ", 1) for rule in page.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"].startswith("'self' 'sha256-")
        assert policy["worker-src"] == "'self'"
    assert ask(client, "/docs/app.js").text == "two()"
    assert 'href="./docs"' in ask(client, "/").text


@pytest.mark.parametrize("path", ["nothing.html", "..%2Fsecret", "../app.py", "%2Fetc%2Fpasswd"])
def test_nothing_but_the_site_is_served(tmp_path, monkeypatch, path):
    (tmp_path / "secret").write_text("secret")
    answer = ask(served(small_site(tmp_path / "site"), monkeypatch), f"/docs/{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["nothing.html", "decisions/nothing.html", "a/b/c/"])
def test_a_browser_gets_a_page_about_a_missing_page(tmp_path, monkeypatch, path):
    client = served(small_site(tmp_path / "site"), monkeypatch)
    page = ask(client, f"/docs/{path}", **BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>No such page</h1>" in page.text
    links = [str(page.url.join(link)) for link in re.findall(r'<a href="([^"]+)', page.text)]
    assert links == ["http://test/docs/all-pages.html", "http://test/"]
    assert ask(client, f"/docs/{path}", Accept="*/*").json()["error"]["code"] == "not_found"


def test_until_the_site_is_built_the_docs_say_how_and_then_need_no_restart(tmp_path, monkeypatch):
    client = served(tmp_path / "site", monkeypatch)
    page = ask(client, "/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<code>make docs</code>" in page.text
    assert '<a href="./">API reference</a>' in page.text
    for path in ("/docs/", "/docs/index.html"):
        assert ask(client, path).headers["location"] == "../docs"
    assert ask(client, "/docs/concepts.html").status_code == 404
    missing = ask(client, "/docs/decisions/0001-own-scheduler.html", **BROWSER)
    assert (missing.status_code, "<code>make docs</code>" in missing.text) == (404, True)
    assert '<a href="../../">API reference</a>' in missing.text
    assert 'href="./docs"' in ask(client, "/").text
    small_site(tmp_path / "site")
    assert ask(client, "/docs").headers["location"] == "docs/index.html"
    assert "Start" in ask(client, "/docs/").text


def test_an_installed_server_without_the_site_does_not_say_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setattr(documentation, "SOURCES", tmp_path / "docs" / "index.md")
    page = ask(served(tmp_path / "site", monkeypatch), "/docs").text
    assert "installed without it" in page
    assert "make docs" not in page
    assert "{" not in page.partition("<body>")[2]


def test_the_search_says_that_there_are_no_results_and_lists_decisions_last(site, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PROJECT_ROOT / "tests" / "e2e"))
    from chromium import chromium, executable

    if executable() is None:
        pytest.skip("Chromium is not installed")
    endpoints = documentation.endpoints(site)
    monkeypatch.setattr(documentation, "endpoints", lambda: endpoints)
    app = GatewayApp(Settings().view(GatewayOptions))
    app.bind(MemoryReplica())
    root = "[...document.body.children].find((one) => one.shadowRoot)?.shadowRoot"
    shown = f"[...{root}.querySelectorAll('ol li a')].sort((a, b) => a.getBoundingClientRect().top - "
    shown += "b.getBoundingClientRect().top).map((one) => one.pathname)"
    with on_a_socket(app) as url, chromium(tmp_path) as page:
        for words in ("PII", "adapters", "zzzqq"):
            page.open(f"{url}/docs/index.html")
            page.wait("document.readyState === 'complete'")
            page.wait(f"(document.querySelector('.md-search__button').click(), {root}?.querySelector('input'))")
            page.evaluate(f"{root}.querySelector('input').focus()")
            page.command("Input.insertText", text=words)
            if words == "zzzqq":
                page.wait(f"{root}.querySelector('ol[data-none]') !== null")
                continue
            page.wait(f"{root}.querySelector('ol li') !== null")
            if words == "PII":  # results come one after the other
                first = f"{shown}.slice(0, 3).join()"
                page.wait(f"['recognizers', 'redaction'].every((name) => {first}.includes('/docs/' + name + '.html'))")
            are_decisions = [path.startswith("/docs/decisions/") for path in page.evaluate(shown)]
            assert are_decisions == sorted(are_decisions)
            assert not page.evaluate(f"{root}.querySelector('ol[data-none]') !== null")
        assert page.messages == []


def test_no_cell_of_the_settings_is_wider_than_the_page():
    """A line ends at blanks only: 20 labels in one code pushed what they mean out of the page."""
    codes = re.findall(r"`([^`]+)`", settings_table())
    assert max(len(part) for code in codes for part in code.split()) < 60


def test_links_of_the_playground_lead_to_pages(site):
    scripts = (PROJECT_ROOT / "gliner_bento" / "gateway" / "pages" / "playground").glob("*.js")
    links = {link for script in scripts for link in re.findall(r"/docs/([\w./-]+)#([\w-]+)", script.read_text("utf-8"))}
    assert links
    for page, section in links:
        assert f'id="{section}"' in (site / page).read_text("utf-8")

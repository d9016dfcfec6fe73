"""The playground's files: what is served, what a browser may do with it, and how it is turned off."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import re
from pathlib import Path

import pytest
from gateway_options import OPTIONS

from gliner_bento.gateway import playground

FOLDER = Path(playground.__file__).parent / "pages" / "playground"
SCRIPTS = sorted(FOLDER.glob("*.js"))
KINDS = {".html": "text/html", ".css": "text/css", ".js": "javascript", ".mjs": "javascript", ".svg": "image/svg+xml"}


def ask(client, path, **kwargs):
    return asyncio.run(client.get(path, **kwargs))


@pytest.mark.parametrize(
    "file", [file for file in FOLDER.rglob("*") if file.suffix in KINDS], ids=lambda file: file.name
)
def test_every_file_of_the_page_is_served_as_what_it_is(client, file):
    answer = ask(client, f"/playground/{file.relative_to(FOLDER).as_posix()}")
    assert (answer.status_code, answer.content) == (200, file.read_bytes())
    assert KINDS[file.suffix] in answer.headers["content-type"]


def test_the_library_of_the_graph_is_stored_and_sent_compressed(client):
    file = FOLDER / "vendor" / "cytoscape.esm.min.mjs.gz"
    answer = ask(client, "/playground/vendor/cytoscape.esm.min.mjs")
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert answer.content == gzip.decompress(file.read_bytes())
    assert int(answer.headers["content-length"]) == file.stat().st_size < 150_000
    assert KINDS[".mjs"] in answer.headers["content-type"]


def test_the_page_is_small_enough_to_open_at_once(client):
    """All but the graph's library, which is loaded when the graph is first shown."""
    assert sum(file.stat().st_size for file in FOLDER.glob("*.*")) < 150_000


def test_the_policy_allows_no_script_and_no_style_but_those_in_files(client):
    page = ask(client, "/playground")
    policy = dict(rule.strip().split(" ", 1) for rule in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page.text)


def test_the_page_loads_nothing_from_elsewhere(client):
    for source in (FOLDER / "index.html", *SCRIPTS, *FOLDER.glob("*.css")):
        text = source.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:src|href|from|import|url)\W{1,3}(?:https?:)?//", text), source.name


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_script_makes_markup_of_a_string(script):
    text = script.read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|eval\(|Function\(", text
    )
    assert text.count("\n") <= 400


def test_a_browser_asks_whether_a_file_has_changed(client):
    first = ask(client, "/playground/main.js")
    assert first.headers["cache-control"] == "no-cache"
    assert ask(client, "/playground/main.js", headers={"If-None-Match": first.headers["etag"]}).status_code == 304


def test_the_folder_leads_to_the_page(client):
    answer = ask(client, "/playground/")
    assert (answer.status_code, answer.headers["location"]) == (308, "../playground")


@pytest.mark.parametrize("path", ["nothing.js", "vendor", "..%2Findex.html", "../../app.py", "%2Fetc%2Fpasswd"])
def test_nothing_but_the_files_of_the_page_is_served(client, path):
    assert ask(client, f"/playground/{path}").status_code == 404


def test_a_server_with_keys_serves_the_page_without_one(serving, replica):
    locked = serving(replica, dataclasses.replace(OPTIONS, api_keys=json.dumps([])))
    assert ask(locked, "/playground").status_code == ask(locked, "/playground/main.js").status_code == 200
    assert ask(locked, "/v1/model").status_code == 401


def test_the_index_page_links_to_it(client):
    assert 'href="./playground"' in ask(client, "/").text


def test_a_setting_turns_it_off(serving, replica):
    without = serving(replica, dataclasses.replace(OPTIONS, enable_playground=False))
    assert ask(without, "/playground").status_code == ask(without, "/playground/main.js").status_code == 404
    assert "./playground" not in ask(without, "/").text

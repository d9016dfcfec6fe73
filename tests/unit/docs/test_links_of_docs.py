"""Links and pictures of all pages: their files exist, and the headings that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from code_blocks import pages

from gliner_bento.settings.configuration import PROJECT_ROOT
from tools.docs_site import links, target_of

PAGES = pages()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT_ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    dead = []
    for link in links(page.read_text(encoding="utf-8")):
        target = page if link[0].startswith("#") else target_of(link[0], page)
        anchor = link[0].partition("#")[2] if target else ""
        if (target and not target.exists()) or (target and anchor and anchor not in anchors(target)):
            dead.append(link[0])
    assert dead == []


def test_pages_are_found():
    assert len(PAGES) > 40
    assert sum(1 for page in PAGES for _ in links(page.read_text(encoding="utf-8"))) > 150

"""The API reference, Swagger UI, in a browser: what it shows first, and its themes."""

from __future__ import annotations

import pytest
from chromium import chromium, executable

pytestmark = pytest.mark.skipif(executable() is None, reason="Chromium is not installed")

DARKNESS = """(() => {
  const [red] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
  const filter = getComputedStyle(document.querySelector('.swagger-ui')).filter;
  return [red < 60, filter.includes('invert')];
})()"""


def test_all_is_folded_and_in_the_theme_of_the_system_or_the_playground(server, tmp_path):
    with chromium(tmp_path) as page:
        for theme in ("light", "dark"):
            page.open(f"{server}/", width=390, theme=theme)
            page.wait("document.querySelectorAll('.opblock-tag').length === 6")
            assert page.evaluate("document.querySelectorAll('.opblock, .model-container').length") == 0
            assert page.evaluate(DARKNESS) == [theme == "dark"] * 2
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate("localStorage.setItem('theme', 'light')")
        page.open(f"{server}/", theme="dark")
        page.wait("document.querySelectorAll('.opblock-tag').length === 6")
        assert page.evaluate(DARKNESS) == [False, False]
        page.click(".opblock-tag")
        page.wait("document.querySelectorAll('.opblock').length >= 4")
        assert page.messages == []


INVERTED = """(() => {
  let count = 0;
  for (let part = document.querySelector('.responses-table .microlight'); part; part = part.parentElement)
    count += getComputedStyle(part).filter.includes('invert');
  return count;
})()"""


def test_an_open_operation_has_dark_code_in_both_themes_and_fits_a_phone(server, tmp_path):
    with chromium(tmp_path) as page:
        for theme in ("light", "dark"):
            page.open(f"{server}/", width=390, theme=theme)
            page.click(".opblock-tag")
            page.click(".opblock-post .opblock-summary-control")
            page.wait("document.querySelector('.responses-table .microlight') !== null")
            assert page.evaluate(INVERTED) == (2 if theme == "dark" else 0)
            assert page.evaluate("document.querySelector('.response .response-col_links').offsetParent") is None
            width = "document.querySelector('.response .response-col_description').getBoundingClientRect().width"
            assert page.evaluate(width) > 240
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

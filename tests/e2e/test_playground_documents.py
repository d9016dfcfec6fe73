"""A PDF of 50 pages with columns, repeated headers and footers, and divided words in a browser, over a real model."""

from __future__ import annotations

import pytest
from chromium import chromium, executable
from test_playground import BY_PAGE, drop

from reliability.document_files import report

pytestmark = [pytest.mark.slow, pytest.mark.skipif(executable() is None, reason="Chromium is not installed")]

FIRST = ("Alice", "Robert", "Maria", "Peter", "Susan", "Thomas", "Laura", "Daniel", "Emma", "George")
LAST = ("Bennett", "Fischer", "Keller", "Johnson", "Martin")
CITIES = ("London", "Paris", "Berlin", "Vienna", "Madrid")
PEOPLE = [f"{first} {last}" for last in LAST for first in FIRST]


def page(number: int) -> list[list[str]]:
    """Header, two columns, footer. A name is on one page only, divided at the end of a line on every second one."""
    name, city = PEOPLE[number - 1], CITIES[number % len(CITIES)]
    cut = len(name) - 3
    left = (
        [f"{name[:cut]}-", f"{name[cut:]} was born in {city}."] if number % 2 else [f"{name} was", f"born in {city}."]
    )
    right = ["Nothing else hap-", "pened."]
    return [["Annual report of the company"], left, right, [f"Page {number} of 50"]]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_marks_are_on_the_pages_of_their_names(server, tmp_path, width, theme):
    file = tmp_path / "report.pdf"
    file.write_bytes(report([page(number) for number in range(1, 51)]))
    with chromium(tmp_path / "profile") as tab:
        tab.open(f"{server}/playground", width=width, theme=theme)
        tab.wait("document.getElementById('status').textContent.includes(' ms')")
        drop(tab, file)
        tab.wait("document.querySelectorAll('.place').length === 50")
        tab.wait("document.getElementById('status').textContent.includes(' ms')")
        found: dict[str, list[str]] = {}
        for number in range(50):
            shown = f"document.querySelectorAll('.place')[{number}].scrollIntoView()"
            own = f"{BY_PAGE}['Page {number + 1}']"
            text, marks = tab.wait(f"({shown}, {own}[1].length && {own})")
            found[f"Page {number + 1}"] = marks
            assert f"Page {number + 1} of 50" in text
            assert "Nothing else happened." in text
            assert PEOPLE[number] in text
        tab.screenshot(tmp_path / f"{width}.png")
        people = [(heading, mark) for heading, marks in found.items() for mark in marks if mark in PEOPLE]
        assert len(people) > 40
        assert people == [(f"Page {PEOPLE.index(name) + 1}", name) for _, name in people]
        assert tab.messages == []

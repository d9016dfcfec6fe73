"""An extraction in a terminal."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from gliner_bento.cli import show
from gliner_bento.tasks.classifications import ClassificationResult, LabelScore
from gliner_bento.tasks.extraction import Entity, Extraction, Relation, RelationArgument
from gliner_bento.tasks.structures import FieldValue


def entity(text: str, word: str, label: str) -> Entity:
    start = text.index(word)
    return Entity(start, start + len(word), word, label, 0.987)


def printed(*parts, **options) -> str:
    out = io.StringIO()
    console = Console(file=out, width=200, highlight=False, **options)
    for part in parts:
        console.print(part)
    return out.getvalue()


TEXT = "The University of Oslo is old."
RESULT = Extraction([entity(TEXT, "University of Oslo", "school"), entity(TEXT, "Oslo", "city")])


def test_entities_are_followed_by_their_labels_also_where_they_are_nested():
    assert printed(show.in_text(TEXT, RESULT)) == "The University of Oslo [school] [city] is old.\n"


def test_an_entity_at_the_end_of_the_text_has_its_label():
    assert printed(show.in_text("in Oslo", Extraction([entity("in Oslo", "Oslo", "city")]))) == "in Oslo [city]\n"


def test_a_label_has_one_colour():
    coloured = printed(show.in_text("Oslo", Extraction([entity("Oslo", "Oslo", "city")])), force_terminal=True)
    assert coloured.startswith("\x1b[1;")
    assert coloured.count("\x1b[0m") == 2


@pytest.mark.parametrize("layout", [show.in_text, lambda text, result: next(show.tables(result))])
def test_a_text_cannot_control_the_terminal(layout):
    text = "a \x1b[31mred\x1b[0m\x07\x9b1m [bold]word[/bold]"
    result = Extraction([entity(text, text, "la\x1bbel")])
    shown = printed(layout(text, result))
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}
    assert "[bold]word[/bold]" in shown


def test_a_reader_that_has_left_is_an_error_of_its_own(monkeypatch):
    class Left(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Left())
    with pytest.raises(BrokenPipeError):
        show.console().print("a")


def test_relations_are_lines_below_the_text_and_a_table_of_their_own():
    head = RelationArgument(0, 4, 22, "University of Oslo", "school")
    tail = RelationArgument(1, 18, 22, "Oslo", "city")
    result = Extraction(RESULT.entities, [Relation("located in", 0.9, head, tail)])
    assert "University of Oslo --located in--> Oslo 0.90" in printed(show.in_text(TEXT, result))
    entities, relations = (printed(table) for table in show.tables(result))
    assert entities.splitlines()[1].split() == ["4", "22", "University", "of", "Oslo", "school", "0.99"]
    assert relations.splitlines()[1].split() == ["University", "of", "Oslo", "located", "in", "Oslo", "0.90"]


def test_structures_are_lines_or_a_table_each():
    found = {
        "buy": [
            {"what": [FieldValue("a b\x1bike", 0.75, 0, 6)], "color": [FieldValue("red", 0.5)]},
            {"what": [], "color": []},
        ]
    }
    result = Extraction((), structures=found)
    assert printed(show.in_text("a", result)) == "a\nbuy: what a b␛ike 0.75 color red 0.50\nbuy:\n"
    rows = printed(*show.tables(result)).splitlines()
    assert [row.split() for row in rows] == [["buy", "what", "color"], ["1", "a", "b␛ike", "red"], ["2"]]


def test_classifications_are_lines_or_a_table():
    labels = [LabelScore("go\x1bod", 0.75), LabelScore("bad", 0.25)]
    result = Extraction((), classifications={"tone": ClassificationResult(labels), "topic": ClassificationResult()})
    assert printed(show.in_text("a", result)) == "a\ntone: go␛od 0.75 bad 0.25\ntopic: no label\n"
    rows = printed(*show.tables(result)).splitlines()
    assert [row.split() for row in rows[1:]] == [["tone", "go␛od", "0.75"], ["tone", "bad", "0.25"]]


def test_a_part_without_a_form_of_its_own_is_a_line_for_each_row(monkeypatch):
    monkeypatch.delitem(show._LINES, "structures")
    result = Extraction((), structures={"buy": [{"what": [FieldValue("bi\x1bke", 0.75, 0, 5)]}]})
    assert printed(show.in_text("a", result)).splitlines()[1:] == ["structures: buy 0 what bi␛ke 0.75 0 5"]

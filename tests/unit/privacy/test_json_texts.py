"""How a text is read that has JSON."""

from __future__ import annotations

from gliner_bento.privacy.json_texts import reading


def test_json_is_found_behind_much_that_only_looks_like_it():
    code = "".join(f"rows[{row}:] " for row in range(200))
    read = reading(code + '{"to": "Zo\\u00eb Ek"}')
    assert read.text == code + '{"to": "Zoë Ek"}'
    assert read.written[read.places[len(code) + 8] : read.places[len(code) + 11]] == "Zo\\u00eb"


def test_beginnings_without_an_end_are_tried_for_a_bounded_time():
    """Each of them is read to the end of the text, so the JSON behind them is not found."""
    text = "[1," * 300 + '{"to": "Zo\\u00eb Ek"}'
    assert reading(text).text == text

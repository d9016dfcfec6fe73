"""The languages in a checkpoint's model card."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gliner_bento.engine.checkpoint.card import CARD, languages_of
from gliner_bento.settings import PROJECT_ROOT


@pytest.mark.parametrize(
    ("metadata", "languages"),
    [
        ("language: en", ["en"]),
        ("language: [en, fr]", ["en", "fr"]),
        ("language:\n- multilingual\n- zh-Hans", ["multilingual", "zh-Hans"]),
        ("language: no", ["no"]),
        ("language: [en, no]", ["en", "no"]),
        ("language:", []),
        ("language: []", []),
        ("license: mit", []),
    ],
)
def test_a_card_lists_one_language_or_several(tmp_path, metadata, languages):
    (tmp_path / CARD).write_text(f"---\n{metadata}\n---\n# Ümläut\n", encoding="utf-8")
    assert list(languages_of(tmp_path)) == languages


@pytest.mark.parametrize("text", [None, "", "# A model\n", "---\n---\n# A model\n"])
def test_without_metadata_the_languages_are_unknown(tmp_path, text):
    if text is not None:
        (tmp_path / CARD).write_text(text, encoding="utf-8")
    assert list(languages_of(tmp_path)) == []


@pytest.mark.parametrize("content", [b"---\nlanguage: [en\n---\n", b"---\njust a text\n---\n", b"---\na: \xff\n---\n"])
def test_a_broken_card_is_a_warning_in_the_log(tmp_path: Path, caplog, content):
    (tmp_path / CARD).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert list(languages_of(tmp_path)) == []
    assert "the model's languages are unknown: its README.md cannot be parsed" in caplog.text


def test_the_bundled_model_is_for_english():
    assert list(languages_of(PROJECT_ROOT / "models" / "demo")) == ["en"]

"""Words at their places: what a splitter leaves out or rewrites, and long texts in pieces."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from gliner.data_processing.tokenizer import WordsSplitter
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.engine.text.word_splitter import (
    PIECE_CHARS,
    PLAIN_PIECE_CHARS,
    WordSplitter,
    pieces,
    plain_pieces,
    with_positions,
)


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Bill Gates", [("Bill", 0, 4), ("Gates", 5, 10)], [("Bill", 0, 4), ("Gates", 5, 10)]),
        ("a b", [("a", 0, 1), (" ", 1, 2), ("b", 2, 3)], [("a", 0, 1), (" ", 1, 2), ("b", 2, 3)]),
        # left out at the beginning, inside and at the end
        ("un. trois x", [("trois", 4, 9)], [("un", 0, 2), (".", 2, 3), ("trois", 4, 9), ("x", 10, 11)]),
        ("a b", [], [("a", 0, 1), ("b", 2, 3)]),
        # stanza: a word that stands for several
        (
            "Musée du Louvre",
            [("Musée", 0, 5), ("de", None, None), ("le", None, None), ("Louvre", 9, 15)],
            [("Musée", 0, 5), ("de", 6, 8), ("le", 6, 8), ("Louvre", 9, 15)],
        ),
        # str.find without a result, and a later word found before it
        ("ＡＢＣ x abc", [("ABC", -1, 2), ("x", 4, 5), ("abc", 6, 9)], [("ABC", 0, 3), ("x", 4, 5), ("abc", 6, 9)]),
        ("a b a", [("a", 0, 1), ("b", 2, 3), ("a", 0, 1)], [("a", 0, 1), ("b", 2, 3), ("a", 4, 5)]),
        # stanza: white space inside a word is normalized
        ("New\nYork", [("New York", 0, 8)], [("New York", 0, 8)]),
        # a word for which no place is left
        ("1 , 2", [("1,2", None, None)], [("1", 0, 1), (",", 2, 3), ("2", 4, 5)]),
        ("a", [("", 0, 0), ("a", 0, 1), ("ghost", None, None)], [("a", 0, 1)]),
    ],
)
def test_every_word_has_its_place_and_no_text_is_left_out(text, words, expected):
    assert list(with_positions(text, words)) == expected


@pytest.mark.parametrize(
    ("sentence", "ends_with"),
    [("Bill Gates founded Microsoft in Redmond. ", ". "), ("東京は日本の首都です。", "。"), ("word ", " "), ("x", "x")],
)
@pytest.mark.parametrize("chars", [1, PIECE_CHARS, PIECE_CHARS + 1, 3 * PIECE_CHARS + 7])
def test_a_long_text_is_cut_into_pieces_after_sentences_or_spaces(sentence, ends_with, chars):
    text = (sentence * chars)[:chars]
    cut = list(pieces(text))
    assert "".join(text[start:end] for start, end in cut) == text
    assert all(PIECE_CHARS // 2 < end - start <= PIECE_CHARS for start, end in cut[:-1])
    assert all(text[start:end].endswith(ends_with) for start, end in cut[:-1])


def test_the_threads_of_all_models_call_the_libraries_in_turn():
    free = threading.Lock()

    def split(text):
        assert free.acquire(blocking=False), "another thread is in the library"
        time.sleep(0.002)
        free.release()
        return [(text, 0, len(text))]

    splitters = [WordSplitter(split, "jieba"), WordSplitter(split, "janome")]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: list(splitters[number % 2]("word")), range(40)))
    assert answers == [[("word", 0, 4)]] * 40


PLAIN = WordsSplitter("whitespace")


def in_chunks(text, words):
    split = []
    for chunk, bounds in WordSplitter(PLAIN, "whitespace").chunks(text, words):
        assert 0 < len(chunk) <= words
        assert bounds.shape == (len(chunk), 2)
        split += [(word, *place) for word, place in zip(chunk, bounds.tolist(), strict=True)]
    return split


@given(
    st.text(st.sampled_from("ab1é_-–. \n\t\u00a0\u3000\u200b\u0301\x00\x1c😀🏽東京ิ"), max_size=60), st.integers(1, 9)
)
def test_plain_words_in_chunks_are_gliners(text, words):
    assert in_chunks(text, words) == list(PLAIN(text))


@pytest.mark.parametrize(
    "text", ["", "  ", "word " * 30_000 + "  ", ("a-b_c, " * 20_000).strip(), "\n" * PLAIN_PIECE_CHARS]
)
def test_plain_words_of_a_long_text_are_gliners(text):
    assert len(list(plain_pieces(text))) == -(-len(text) // PLAIN_PIECE_CHARS)
    assert in_chunks(text, 256) == list(PLAIN(text))

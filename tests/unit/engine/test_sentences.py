from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.engine.text.sentences import sentence_ends

# "|" is where a sentence ends; the rules of UAX 29 that the text is about.
TEXTS = {
    "stops": "It rained. |We left! |Did we? |Yes",
    "space belongs to the sentence before": "One.   |Two",
    "closing marks, too (SB9, SB10)": 'He said "No." |(She left.) |Then',
    "a number is not the end (SB6)": "It was 3.5 metres. |A lot",
    "nor an initialism (SB7)": "The U.S. |Army, and the U.S.A. won",
    "lower case continues (SB8)": "He asked etc. and so on. |Then",
    "a comma continues (SB8a)": "Well?, he said. |So",
    "a row of stops is one (SB8a)": "What?!... |Nothing",
    "lines (SB4)": "one\n|two\r\n|three\u2029|four",
    "a stop before a line (SB11)": "One.\n|two",
    "Chinese": "我來了。|你走了！|他呢？|好",
    "Japanese, quoted": "「行くよ。」|と彼は言った。|そう",
    "Arabic": "هل جاء؟ |نعم. |ثم",
    "Hindi": "वह आया। |वह गया",
    "Armenian": "Եկավ։ |Գնաց",
    "Ethiopic": "መጣ። |ሄደ",
    "Thai has no stops": "เขามาแล้ว เขาไปแล้ว",
    "combining marks are looked through (SB5)": "Cafe\u0301.\u0308 |Then",
}


@pytest.mark.parametrize("marked", TEXTS.values(), ids=TEXTS.keys())
def test_where_sentences_end(marked: str) -> None:
    *sentences, _ = marked.split("|")
    text = marked.replace("|", "")
    ends = [sum(map(len, sentences[: number + 1])) for number in range(len(sentences))]
    assert sentence_ends(text, 0, len(text)) == ends


@given(st.text(alphabet='aA. \n!?()"1,。\u0301', max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_of_a_part_are_those_of_the_whole(text: str, start: int, end: int) -> None:
    ends = sentence_ends(text, start, min(end, len(text)))
    assert ends == sorted(set(ends))
    assert all(start < place <= end for place in ends)


@pytest.mark.parametrize("unit", [" ", ".", "a", "A.", "(", ".(", "?,", "\u0301", "\n", ". 1 "])
def test_time_grows_with_the_length(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert len(sentence_ends(text, 0, len(text))) <= len(text)
    # Asked about a part, only the part is looked at: a million times the whole would not end.
    for start in range(0, len(text) - 100, len(text) // 5000):
        sentence_ends(text, start, start + 50)

"""Names that are also words."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.word_names import word_names

NAMES = {
    "[Grace Miller] waited. Then [Will Sand] will sand the door.": "with a surname",
    "[Faith] lost her keys, and I told [Hunter] about it.": "by what is around them",
    "[Grace], 45, was seen; we saw [Hope], 3 years old. By May, 20, and June, 14": "with an age",
    "She is with [Holly] and [Jack]. “[Dawn] said so.”": "within a sentence",
    "Will Sand come? May Parker ask? Grace Period, Hope Street, Summer Sale starts, Amber Alert Level": "no surnames",
    "The grace of dawn; from June to May 2021; in April, Ward 7, Hope-driven, Jack(1)": "words",
    "GRACE MILLER AND HOPE": "capitals only",
}


@pytest.mark.parametrize("marked", NAMES, ids=NAMES.values())
def test_words_are_names_by_their_capitals_and_what_is_around_them(marked):
    text = marked.replace("[", "").replace("]", "")
    expected = [part.split("]")[0] for part in marked.split("[")[1:]]
    assert [text[span.start : span.end] for span in word_names(text)] == expected

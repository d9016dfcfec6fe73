"""Searches that are left out because a text lacks a word would have found nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_announced_names import NAMES
from test_announced_values import NUMBERS, PLACES
from test_foreign_relatives import NAMES as FOREIGN
from test_names_in_context import IN_CONTEXT
from test_related_names import NAMES as RELATED

from gliner_bento.privacy import announced_names as names
from gliner_bento.privacy import announced_numbers as numbers
from gliner_bento.privacy import announced_places as places
from gliner_bento.privacy import foreign_relatives as foreign
from gliner_bento.privacy import related_names as related
from gliner_bento.privacy.name_words import TITLES
from gliner_bento.privacy.names_in_columns import names_in_columns
from gliner_bento.privacy.names_in_context import names_in_context
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.related_names import related_names
from gliner_bento.settings import PROJECT_ROOT

CHOICES = {
    TITLES: lambda clues: clues.has_word(names._TITLE_WORDS),
    names._GREETINGS: lambda clues: clues.has_word(names._GREETING_WORDS),
    names._CLOSINGS: lambda clues: clues.has_word(names._CLOSING_WORDS),
    names.FIELDS: lambda clues: clues.has_part(names.FIELD_PARTS),
    names._I_AM_PHRASES: lambda clues: clues.has_word(names._I_AM_WORDS),
    names._PHRASES: lambda clues: clues.has_part(names._PHRASE_PARTS),
    places._STREETS: lambda clues: clues.has_word(places._STREET_WORDS),
    places._HOMES: lambda clues: clues.has_word(places._LIVES_WORDS) or clues.has_part(places._LIVES_PARTS),
    numbers._PASSWORDS: lambda clues: clues.has_word(numbers._PASSWORD_WORDS),
    f"{related._KIN}|{related._ROLES}|{related._CARERS}|{related._RELATIVES}": lambda clues: clues.has_word(
        related._RELATION_WORDS
    ),
    "|".join(owners for owners, _ in foreign._RELATIVES): lambda clues: clues.has_word(foreign._OWNERS),
    f"{numbers._OWNERS}|{numbers._FOREIGN}": lambda clues: clues.has_part(numbers._NUMBER_PARTS),
}


FINDERS = (
    *(names.announced_names, places.announced_places, numbers.announced_numbers),
    *(names_in_context, names_in_columns, related_names, foreign.foreign_relatives),
)


class Everything(Clues):
    """Leaves nothing out."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.is_plain = False


@pytest.mark.parametrize("pattern", CHOICES, ids=range(len(CHOICES)))
@given(st.data())
def test_each_choice_of_a_pattern_is_looked_for(pattern, data):
    text = data.draw(st.from_regex(re.compile(pattern), fullmatch=True))
    assert CHOICES[pattern](Clues(f"Now {text.upper() if text.isascii() else text} Ada"))


def test_the_same_is_found_in_every_text():
    sets = (PROJECT_ROOT / "benchmark" / "personal_texts").rglob("*.txt")
    lines = [line.replace("\\n", "\n") for path in sets for line in path.read_text("utf-8").splitlines()]
    marked = (*lines, *NAMES, *PLACES, *NUMBERS, *IN_CONTEXT, *RELATED, *FOREIGN)
    texts = [re.sub(r"[\[\]]", "", text) for text in marked]
    assert any(Clues(text).is_plain for text in texts)
    for text in texts:
        for find in FINDERS:
            assert [*find(Clues(text))] == [*find(Everything(text))], text

"""Several texts that are redacted as one conversation."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.errors import TooLarge
from gliner_bento.privacy.conversation import Finds, OnePlaceholder, outside, redact_conversation, redact_document
from gliner_bento.privacy.json_texts import Reading
from gliner_bento.privacy.lists import NO_LISTS, ListEntry, Lists
from gliner_bento.privacy.redact import CharBudget
from gliner_bento.privacy.restoring import Restorer
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.styles import Placeholders, hashes, remove, tag
from gliner_bento.privacy.written_placeholders import canonical, reserved_in

WORDS = [
    "Ada",
    "Bob",
    "Zoë Ng",
    "ada",
    "(Ada)",
    "x",
    "[PERSON_2]",
    "PERSON_1",
    "[Person 3]",
    "渡辺さん",
    "渡辺",
    "a_Ada",
]


def spans_of(text, *values, label="person"):
    return [LabeledSpan(match.start(), match.end(), label) for value in values for match in re.finditer(value, text)]


def redacted(texts, found, *, mapping=None, lists=None, style=None, hashed=False, max_chars=10_000):
    """The redacted texts, and the mapping."""
    mapping = mapping or {}
    kinds = {tag(span.label) for of_text in found for span in of_text}
    reserved = reserved_in(texts, kinds).union(map(canonical, mapping))
    numbers = Placeholders(lambda placeholder: canonical(placeholder) in reserved)
    one = OnePlaceholder(style or numbers, mapping)
    listed = [(lists or NO_LISTS).listed(text, []) for text in texts]
    readings, budget = [*map(Reading.plain, texts)], CharBudget(max_chars)
    result = redact_conversation(readings, found, one, mapping=mapping, listed=listed, hashed=hashed, budget=budget)
    return [text.text for text in result.texts], one.mapping


def test_numbering_continues_over_texts_and_a_value_has_one_placeholder_whatever_its_label_is():
    texts = ["Ada met Bob.", "bob, then ADA and Paris"]
    found = [
        spans_of(texts[0], "Ada", "Bob"),
        spans_of(texts[1], "bob", "ADA") + spans_of(texts[1], "Paris", label="city"),
    ]
    found[1][1] = LabeledSpan(10, 13, "organization")
    assert redacted(texts, found) == (
        ["[PERSON_1] met [PERSON_2].", "[PERSON_2], then [PERSON_1] and [CITY_1]"],
        {"[PERSON_1]": "Ada", "[PERSON_2]": "Bob", "[CITY_1]": "Paris"},
    )


def test_a_value_that_is_found_once_is_replaced_in_all_texts_as_a_whole_word():
    texts = ["Ada Lovelace", "Lovelace, Ada  \nLovelace; xAda, Ada_Lovelace, 'Ada Lovelace'", "渡辺さんと渡辺", "渡辺"]
    found = [spans_of(texts[0], "Ada Lovelace"), [], [], spans_of(texts[3], "渡辺")]
    assert redacted(texts, found)[0] == [
        "[PERSON_1]",
        "Lovelace, [PERSON_1]; xAda, Ada_Lovelace, '[PERSON_1]'",
        "[PERSON_2]さんと[PERSON_2]",
        "[PERSON_2]",
    ]


def test_a_value_is_replaced_in_any_case_unless_it_is_a_single_word():
    texts = ["May Ng, a@b.org", "MAY NG of A@B.ORG may"]
    mapping = {"[PERSON_1]": "May Ng", "[PERSON_2]": "May"}
    assert redacted(texts, [spans_of(texts[0], "a@b.org", label="email address"), []], mapping=mapping)[0] == [
        "[PERSON_1], [EMAIL_ADDRESS_1]",
        "[PERSON_1] of [EMAIL_ADDRESS_1] may",
    ]


def test_a_value_that_became_longer_by_joining_is_replaced_in_all_texts_too():
    texts = ["Ada Lovelace", "Ada Lovelace"]
    found = [[LabeledSpan(0, 8, "person"), LabeledSpan(4, 12, "person")], [LabeledSpan(0, 3, "person")]]
    assert redacted(texts, found)[0] == ["[PERSON_1]", "[PERSON_1]"]


def test_the_next_turn_replaces_the_values_of_the_mapping_and_keeps_its_placeholders():
    mapping = {"[PERSON_1]": "Ada", "[CITY_1]": "Paris"}
    texts = ["[PERSON_1] is Ada of Paris", "Bob [PERSON_1] Ng"]
    found = [spans_of(texts[0], r"\[PERSON_1\]", "PERSON_1"), spans_of(texts[1], ".*")]
    new, after = redacted(texts, found, mapping=mapping)
    assert new == ["[PERSON_1] is [PERSON_1] of [CITY_1]", "[PERSON_2][PERSON_1][PERSON_3]"]
    assert after == {**mapping, "[PERSON_2]": "Bob ", "[PERSON_3]": " Ng"}


def test_allowed_values_stay_and_denied_ones_go():
    texts = ["Ada and Bob use BLUE bird and Blueish", "bob"]
    found = [spans_of(texts[0], "Ada", "Bob"), []]
    denied = [ListEntry("Blue Bird", label="project"), ListEntry("Bob", label="person")]
    lists = Lists([ListEntry("ada"), ListEntry("bob")], denied)
    assert redacted(texts, found, lists=lists)[0] == ["Ada and [PERSON_1] use [PROJECT_1] and Blueish", "[PERSON_1]"]


def test_a_number_that_the_texts_have_is_not_used_in_any_form():
    texts = ["PERSON_1, [Person 2] and [person-3] met Ada"]
    assert redacted(texts, [spans_of(texts[0], "Ada")])[0] == ["PERSON_1, [Person 2] and [person-3] met [PERSON_4]"]


class Counted(Sequence):
    """Counts how often it is read."""

    def __init__(self, values):
        self.values, self.reads = values, 0

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        part = self.values[index]
        self.reads += len(part) if isinstance(index, slice) else 1
        return part


def test_a_span_is_compared_with_few_of_many_placeholders():
    placeholders = Counted([(10 * index, 10 * index + 5) for index in range(1000)])
    parts = outside("a" * 10_000, LabeledSpan(5003, 5022, "x"), placeholders)
    assert [(part.start, part.end) for part in parts] == [(5005, 5010), (5015, 5020)]
    assert outside("a" * 10_000, LabeledSpan(5005, 5010, "x"), placeholders) == [LabeledSpan(5005, 5010, "x")]
    assert placeholders.reads < 100


def test_reserved_placeholders_are_not_looked_for_in_the_text():
    class Text(str):
        def __contains__(self, part):
            raise AssertionError(part)

    assert (
        Placeholders(lambda placeholder: placeholder == "[CITY_1]")(Text("Ada"), LabeledSpan(0, 3, "city"))
        == "[CITY_2]"
    )


def test_redacted_texts_have_a_maximum_length_together():
    texts = ["Ada Bob", "Ada Bob"]
    found = [spans_of(text, "Ada", "Bob", label="n" * 100) for text in texts]
    assert len("".join(redacted(texts, found, max_chars=418)[0])) == 418
    with pytest.raises(TooLarge, match="more than 417 characters") as raised:
        redacted(texts, found, max_chars=417)
    assert raised.value.param == "text"


def test_hashes_need_no_mapping_of_earlier_turns():
    style = hashes(b"key")
    (first,), mapping = redacted(["Ada"], [spans_of("Ada", "Ada")], style=style)
    (second,), _ = redacted(
        [f"{first} and Ada"], [spans_of(f"{first} and Ada", r"\[.*\]", "Ada")], style=style, hashed=True
    )
    assert second == f"{first} and {first}"
    assert mapping == {first: "Ada"}


@pytest.mark.parametrize(
    "value",
    ["card_4111111111111111", "CARD_4111111111111111", "Bluebird_0123456789abcdef", "BLUEBIRD_0123456789abcdef"],
)
def test_a_value_in_the_form_of_a_hash_is_replaced(value):
    text, key = f"pay with [{value}] now", hashes(b"key")
    lists = Lists(deny=[ListEntry("Bluebird", label="project")])
    found = [spans_of(text, r"\d{16}", label="card")]
    (new,), mapping = redacted([text], found, lists=lists, style=key, hashed=True)
    secret = value.split("_")["4111" in value]
    assert secret not in new
    assert secret in mapping.values()
    (again,), _ = redacted([new], [[]], style=key, hashed=True)
    assert again == new


def test_a_deny_list_leaves_the_hashes_of_the_mapping():
    text = "[PROJECT_0123456789abcdef] is a project"
    lists = Lists(deny=[ListEntry("project")])
    mapping = {"[PROJECT_0123456789abcdef]": "Bluebird"}
    (new,), _ = redacted([text], [[]], mapping=mapping, lists=lists, style=hashes(b"key"), hashed=True)
    assert new.startswith("[PROJECT_0123456789abcdef] is a [SENSITIVE_")


def test_a_style_without_placeholders_leaves_nothing():
    assert redacted(["Ada, Ada"], [spans_of("Ada, Ada", "Ada")], style=remove)[0] == [", "]


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=3), st.sets(st.sampled_from(WORDS)))
def test_the_model_never_gets_a_found_value_and_the_originals_come_back(words, values):
    texts = [" ".join(each) for each in words]
    found = [[one for value in values for one in spans_of(text, rf"(?<!\w){re.escape(value)}(?!\w)")] for text in texts]
    new, mapping = redacted(texts, found)
    for text, replaced in zip(texts, new, strict=True):
        restored = Restorer(mapping).restore(replaced, "text")
        assert restored.casefold() == text.casefold()
        for original in mapping.values():
            if len(original) > 1 and original.strip("[]") not in ("PERSON_1", "PERSON_2", "Person 3"):
                assert not re.search(rf"(?<![\w]){re.escape(original)}(?![\w])", replaced)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        (
            "aged 91. BP 150/91, O2 91%, 91 mg, aged 91",
            ["(?<=aged )91"],
            "aged [X_1]. BP 150/91, O2 91%, 91 mg, aged [X_1]",
        ),
        ("Initials: A. Vitamin A. helps", ["(?<=: )A[.]"], "Initials: [X_1] Vitamin A. helps"),
        ("Initials: I.E. I.E. and i.e. this", ["(?<=: )I[.]E[.]"], "Initials: [X_1] I.E. and i.e. this"),
        ("7B or A-12, 7B, A-12", ["^7B", "A-12(?=,)"], "[X_1] or [X_2], 7B, A-12"),
        ("4711 Ng, Ng, 4711, 5 May, 5 may", ["^4711", "Ng(?=,)", "5 May"], "[X_1] [X_2], [X_2], [X_1], [X_3], [X_3]"),
        ("AB-12 Bo; Bo, ab-12", ["AB-12", "Bo(?=;)"], "[X_1] [X_2]; [X_2], [X_1]"),
        ("金氏, 金氏と", ["^金氏"], "[X_1], [X_1]と"),
    ],
)
def test_what_is_too_short_to_stand_for_one_thing_is_replaced_only_where_it_is_found(text, values, expected):
    found = spans_of(text, *values, label="x")
    assert redacted([text], [found])[0] == [expected]
    document = redact_document([text, text], [Finds(found), Finds(found)], Placeholders())
    assert [one.text for one in document.texts] == [expected] * 2


def test_short_values_of_earlier_turns_are_not_replaced():
    mapping = {"[AGE_1]": "91", "[PERSON_1]": "A.", "[PERSON_2]": "Ng"}
    texts = ["BP 150/91, vitamin A. of Ng, aged 91"]
    found = [[LabeledSpan(len(texts[0]) - 2, len(texts[0]), "age")]]
    assert redacted(texts, found, mapping=mapping) == (["BP 150/91, vitamin A. of [PERSON_2], aged [AGE_1]"], mapping)

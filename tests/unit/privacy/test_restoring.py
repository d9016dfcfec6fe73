"""Placeholders as language models write them, and the originals again."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gliner_bento.errors import TooLarge
from gliner_bento.privacy.redact import CharBudget
from gliner_bento.privacy.restoring import Restorer

MAPPING = {
    "[PERSON_1]": "Ada Lovelace",
    "[PERSON_12]": "Bob",
    "[PHONE_NUMBER_1]": "+44 1",
    "[NOTE_1]": 'a "b" \\',
    "[PERSON_6ac3c336e4094835]": "Eve",
    "[A_B_1]": "x",
    "[AB_1]": "y",
    "[NAME_OR_ALIAS_1]": "A&B",
    "[ÉLÈVE_1]": 'Zoë "Z"',
    "[𐐀_ID_2]": "z",
}
RESTORED = {
    "[PERSON_1] and [PERSON_12]": "Ada Lovelace and Bob",
    "PERSON_1, PERSON_12.": "Ada Lovelace, Bob.",
    "[Person 1] [person-1] [PERSON1] [ PERSON_1 ]": "Ada Lovelace Ada Lovelace Ada Lovelace Ada Lovelace",
    "**[PERSON_1]**, `[PERSON_1]`, _[PERSON_1]_": "**Ada Lovelace**, `Ada Lovelace`, _Ada Lovelace_",
    "<PERSON_1> {PERSON_1} 【PERSON_1】 &lt;NAME_OR_ALIAS_1&gt;": "Ada Lovelace Ada Lovelace Ada Lovelace A&amp;B",
    "{{PERSON_1}} <<PERSON_1>> {{{ PERSON_1 }}} &lt;&lt;person 1&gt;&gt;": " ".join(["Ada Lovelace"] * 4),
    "[[PERSON_1]] {{PERSON_1}: 1} {{{[PERSON_12]}}}": "[Ada Lovelace] {Ada Lovelace: 1} {{{Bob}}}",
    "_PERSON_1_ __PERSON_1__ ___PERSON_1___": "_Ada Lovelace_ __Ada Lovelace__ ___Ada Lovelace___",
    r"__PERSON_1, PERSON_12__ \_\_PERSON\_12\_\_": r"__Ada Lovelace, Bob__ \_\_Bob\_\_",
    "[PERSON_1]'s and PERSON_1's": "Ada Lovelace's and Ada Lovelace's",
    r"\[PERSON\_1\]": "Ada Lovelace",
    "[PERSON_1, PERSON_12]": "[Ada Lovelace, Bob]",
    r"C:\Users\[PERSON_12] \\[PERSON_12]\\": r"C:\Users\Bob \\Bob\\",
    "[phone number 1]": "+44 1",
    "https://x.org/%5BPERSON_1%5D?q=[PERSON_1]": "https://x.org/Ada%20Lovelace?q=Ada%20Lovelace",
    '{"to": "[PERSON_1]", "note": "[NOTE_1]"}': json.dumps({"to": "Ada Lovelace", "note": MAPPING["[NOTE_1]"]}),
    '{"a":"https://x.org/?q=[PERSON_1]","b":"[PERSON_1]","c":"&lt;NOTE_1&gt;"}': (
        '{"a":"https://x.org/?q=Ada%20Lovelace","b":"Ada Lovelace","c":"a \\"b\\" \\\\"}'
    ),
    'not JSON: "[NOTE_1]"': 'not JSON: "a "b" \\"',
    "[PERSON_6ac3c336e4094835] PERSON_6ac3c336e4094835": "Eve Eve",
    "はPERSON_1です andPERSON_1": "はAda Lovelaceです andAda Lovelace",
    r'{"to": "a\nPERSON_1 \u00e9PERSON_12"}': json.dumps({"to": "a\nAda Lovelace éBob"}).replace("00E9", "00e9"),
    "[A_B_1] [AB_1]": "x y",
    r'{"to": "[\u00C9L\u00c8VE_1], [\u00e9l\u00e8ve 1], \u00c9L\u00c8VE_1, [\ud801\udc00_ID_2]"}': (
        json.dumps({"to": 'Zoë "Z", Zoë "Z", Zoë "Z", z'}, ensure_ascii=False)
    ),
    r"not JSON: [\u00c9L\u00c8VE\_1] \[\u00c9L\u00c8VE_1\] <\u00c9l\u00e8ve_1> [\\u00c9L\\u00c8VE_1]": (
        "not JSON: " + " ".join(['Zoë "Z"'] * 4)
    ),
}
LEFT = [
    r"[PER\u017fON_1]",
    r"[\u212a_1]",
    "Person 1",
    "person_1",
    "XPERSON_1",
    "PERSON_1X",
    "PERSON_1_2",
    "persons 1",
    "[PERSON 1",
    "a_PERSON_1",
    "PERSON_1__x",
    "MY_PERSON_1_",
    "MY__PERSON_1__",
    "____PERSON_1____",
]
TEXT = (
    "Dear [PERSON_1], PERSON_12 **[Person 1]** %5BPERSON_1%5D &lt;AB_1&gt; [phone  number_1] in [a] persona 1, "
    r"\[PERSON\_1\] \nPERSON_1 a_PERSON_1 __PERSON_1__ {{PERSON_1}} {{{PERSON_1}} &lt;&lt;PERSON_1&gt;&gt; "
    "はPERSON_1です: https://x.org/?q=[PERSON_1]&p=PERSON_1 "
)


@pytest.mark.parametrize("text", RESTORED)
def test_what_is_unambiguous_is_restored(text):
    restorer = Restorer(MAPPING)
    assert restorer.restore(text) == RESTORED[text]
    assert (restorer.counts.ambiguous, [*restorer.counts.unknown]) == (0, [])


@pytest.mark.parametrize("text", LEFT)
def test_ordinary_words_stay(text):
    restorer = Restorer(MAPPING)
    assert restorer.restore(text) == text
    assert restorer.counts.restored == 0


def test_what_may_stand_for_several_stays_and_is_counted_and_what_is_unknown_is_reported():
    restorer = Restorer(MAPPING)
    text = "[ab 1] [PERSON_3] [Person 4] [CITY_1] [note: 5] <h1> [PERSON_1]"
    assert restorer.restore(text) == text.replace("[PERSON_1]", "Ada Lovelace")
    assert (restorer.counts.restored, restorer.counts.ambiguous) == (1, 1)
    assert [*restorer.counts.unknown] == ["[PERSON_3]", "[Person 4]", "[CITY_1]"]


def test_originals_are_not_restored_again():
    assert Restorer({"[A_1]": "[B_1]", "[B_1]": "x"}).restore("[A_1]") == "[B_1]"


NAMES = "PERSON", "FULL_NAME", "NAME", "E", "İSIM"
KEYS = [*(f"[{name}_{number}]" for name in NAMES for number in (1, 2, 12)), "[PERSON_6ac3c336e4094835]", "[ÉLÈVE_1]"]
NASTY = ["Ada Ng", 'a "b" \\', "x\ny\t\x00", "\ud800z", "[PERSON_1]", "E_2 1", "A&B <c>", "é東\u2028", "", "%5B?&/#"]
PIECES = [
    *(
        "hello ",
        "x",
        "PER",
        "person ",
        "[",
        "]",
        "<",
        "&",
        "&gt",
        "%",
        "%5",
        "%20",
        "\\",
        "\\n",
        "\\u00e9",
        "_",
        "1",
        "\\u01",
        "NO",
        "\\u0130SIM_1",
        "\\\\u00c9",
    ),
    *("https://x.org/?q=", "://", "http:", "/", "//", "\n", " ", "é", "は", "(", '"', ",", "[1]", "](", "6ac3", "İ"),
    *("12", "'s", "e", "E"),
]
BRACKETS = [
    *("[]", "<>", "{}", "【】", "［］", "  "),
    *("__", ("{{", "}}"), ("<<<", ">>>"), ("&lt;&lt;", "&gt;&gt;"), ("___", "___"), ("{{ ", "}"), ("{", "}}}")),
    *(("&lt;", "&gt;"), ("%5B", "%5D"), ("\\[", "\\]"), ("[ ", " ]"), ("**[", "]**"), ("[", ">"), ("", "")),
]
CHANGES = [
    *(str, str.lower, str.title, lambda inner: inner.replace("_", " "), lambda inner: inner.lower().replace("_", "-")),
    *(
        lambda inner: inner.replace("_", "\\_"),
        lambda inner: inner.replace("_", ""),
        lambda inner: inner.replace("_", "__"),
        lambda inner: json.dumps(inner)[1:-1],
    ),
]
written = st.builds(
    lambda brackets, key, change: brackets[0] + change(key[1:-1]) + brackets[1],
    *map(st.sampled_from, (BRACKETS, [*KEYS, "[A_B_1]", "[AB_1]"], CHANGES)),
)
texts = st.lists(written | st.sampled_from(PIECES), max_size=8).map("".join)
mappings = st.dictionaries(st.sampled_from([*KEYS, "[A_B_1]", "[AB_1]"]), st.sampled_from(NASTY), max_size=4)


@given(mappings, texts, st.lists(st.integers(1, 9), max_size=40), st.sampled_from(["text", "json"]))
@example(MAPPING, TEXT, [1] * 400, "text")
@example({"[E_1]": "Ada"}, "[NAME_1]", [4], "text")
@example({"[E_1]": "Ada"}, "[E_1hello", [5], "text")
@example({"[PERSON_1]": "\ud800"}, "%5BPERSON_1%5D", [], "text")
@example({"[İSIM_1]": "Ada"}, r"NO\u0130SIM_1 x", [3], "text")
@example({"[İSIM_1]": "Ada"}, r"NO\\u0130SIM_1 x NO\\\u0130SIM_1 x", [1] * 40, "text")
@example({"[İSIM_1]": "Ada"}, r"NO\\\\u0130SIM_1 x \\u0130SIM_1", [1] * 40, "text")
@example({"[İSIM_1]": "Ada"}, r"1\u0130SIM_1 _\u0130SIM_1 \u0041\u0130SIM_1", [1] * 60, "text")
@example({"[İSIM_1]": "Ada", "[OİSIM_1]": "Bob"}, r"NO\u0130SIM_1 x", [3], "text")
@example({"[İSIM_1]": "Ada", "[SIM_1]": "Bob"}, r"NO\u0130SIM_1 NOİSIM_1 x", [8, 1, 1, 1, 1, 1, 1, 1, 1], "text")
@example({"[FULL_NAME_1]": "Ada", "[NAME_1]": "Bob"}, "fullNAME_1 x", [5], "text")
@example({"[LÈVE_1]": "Ada"}, r"a L\u00c8VE_1 x", [1] * 20, "text")
@example({"[1A_1]": "Ada"}, "21A_1", [3], "text")
@example({"[𐐀_1]": "Ada"}, r"NO\ud801\udc00_1 \ud801\udc00_1", [1] * 40, "text")
@example({"[NAME_12]": "Ada"}, "[FULL__NAME__12] foo__NAME_12__ foo_NAME_12_ L_NAME_12_ ____NAME_12", [8], "text")
@example({"[NAME_12]": "Ada"}, "[FULL__NAME__12] foo__NAME_12__ foo_NAME_12_ L_NAME_12_ ____NAME_12", [1] * 99, "text")
def test_chunks_of_any_size_give_the_same_text_and_hold_back_at_most_one_placeholder(mapping, text, sizes, form):
    restorer, restored, held, position = Restorer(mapping), "", "", 0
    for size in [*sizes, len(text)]:
        part, held = restorer.restore_chunk(held + text[position : position + size], form)
        restored, position = restored + part, position + size
        url = held.find("://") if "://" in held else len(held)
        assert len(held[:url]) <= max((len(json.dumps(name)) for name in mapping), default=0) + 40
    whole = Restorer(mapping)
    assert restored + restorer.restore(held, form) == whole.restore(text, form)
    assert restorer.counts.restored == whole.counts.restored
    assert restorer.counts.unknown.keys() <= whole.counts.unknown.keys()


@given(mappings, texts)
def test_what_the_mapping_does_not_have_stays(mapping, text):
    others = {"[CITY_1]": "never", "[CITY_2]": "shown"}
    assert Restorer(others).restore(text, "text") == text
    assert Restorer({**others, **mapping}).restore(text, "text") == Restorer(mapping).restore(text, "text")


@given(st.lists(st.sampled_from(KEYS)), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(NASTY) | st.text()))
def test_json_stays_json_with_any_original(keys, mapping):
    value = {"to": keys, "note": {f"{key}: {key}": [f'say "{key}"\n\\{key}'] for key in keys}}
    restored = Restorer(mapping).restore(json.dumps(value, ensure_ascii=False))

    def of(key):
        return mapping.get(key, key)

    new = {f"{of(key)}: {of(key)}": [f'say "{of(key)}"\n\\{of(key)}'] for key in keys}
    assert json.loads(restored) == {"to": [*map(of, keys)], "note": new}


@given(mappings, texts)
def test_json_stays_json_with_placeholders_in_any_form(mapping, text):
    assert [*json.loads(Restorer(mapping).restore(json.dumps({"a": text})))] == ["a"]


@given(st.sampled_from(NASTY) | st.text(), st.sampled_from(["[PERSON_1]", "PERSON_1", "%5BPERSON_1%5D", "<PERSON_1>"]))
def test_an_original_with_spaces_is_quoted_in_a_url(original, placeholder):
    restored = Restorer({"[PERSON_1]": f"{original} b"}).restore(f"see https://x.org/a?q={placeholder}&p=1 now", "text")
    url, _, rest = restored.removeprefix("see ").partition(" ")
    assert rest == "now"
    assert parse_qs(urlsplit(url).query)["q"] == [f"{original} b".encode(errors="replace").decode()]


def test_nothing_is_held_back_that_cannot_be_a_placeholder():
    for text in ("It is done.", "[PERSON_1]", "It is done", "see [1]", "3 > 2.", "100 % ", "a\\r", "%20", "per"):
        assert Restorer(MAPPING).restore_chunk(text) == (Restorer(MAPPING).restore(text), "")
    for text in ("It is DOX", "x < 3", "100 %"):
        assert Restorer(MAPPING).restore_chunk(text) == (text[:-1], text[-1]), "the next chunk may continue a word"
    assert Restorer(MAPPING).restore_chunk("Dear [PER") == ("Dear ", "[PER")
    assert Restorer({}).restore_chunk("Dear [PER") == ("Dear [PER", "")


def test_a_long_run_of_underscores_is_one_separator():
    """As a quantifier for each underscore, the text without a number would take years."""
    name = f"A{'_' * 30}B"
    restorer = Restorer({f"[{name}_1]": "Ada"})
    assert restorer.restore(f"a{'_' * 80}x") == f"a{'_' * 80}x"
    assert restorer.restore(f"[{name}_1] [a b 1]") == "Ada Ada"


def test_the_originals_of_all_texts_have_a_maximum_length():
    restorer = Restorer({"[PERSON_1]": "x" * 100}, CharBudget(300))
    assert len(restorer.restore("[PERSON_1] [PERSON_1]")) == 201
    assert restorer.restore_chunk("[PERSON_1] .")[0] == "x" * 100 + " ."
    with pytest.raises(TooLarge, match="more than 300 characters") as raised:
        restorer.restore("[PERSON_1]")
    assert raised.value.param == "text"


def test_without_a_limit_of_the_caller_there_is_one():
    with pytest.raises(TooLarge):
        Restorer({"[A_1]": "x" * 2**20}).restore("[A_1] " * 40)


def test_many_names_that_begin_and_end_alike_are_not_compared_one_by_one():
    """With every name at every character, this would take hours."""
    mapping = {f"[{'A' * size}_1]": str(size) for size in range(1, 900)} | {
        f"[{'_'.join('B' * size)}_1]": f"b{size}" for size in range(1, 450)
    }
    text = "a" * 100_000 + " " + "b " * 100_000
    restorer = Restorer(mapping)
    assert restorer.restore(f"{text}[AAA_1] [B_B_1] [b b b 1]") == f"{text}3 b2 b3"


def test_the_longest_name_and_the_first_match_win():
    mapping = {"[NAME_1]": "x", "[FULL_NAME_1]": "Ada", "[FULL_NAME_1_NAME_2]": "Bob", "[A1_2]": "y", "[A_12]": "z"}
    restored = Restorer(mapping).restore("[full name 1] [FULL_NAME_1_NAME_2] FULL_NAME_1, [Name 1] [A1_2] [A_12] [a12]")
    assert restored == "Ada Bob Ada, x y z [a12]"

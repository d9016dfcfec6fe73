"""Records: the texts are those of the standard library's parsers, and what is replaced is nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.errors import LimitExceeded
from gliner_bento.files.redaction.columns import Columns
from gliner_bento.files.redaction.text_file import records_of, redact_record
from gliner_bento.privacy import known_values
from gliner_bento.privacy.conversation import Finds
from gliner_bento.privacy.lists import Listed
from gliner_bento.privacy.redact import restore
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.styles import Placeholders

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('",\\\r\n\t;é\U0001f600')), max_size=20
)


def finds(*spans: list[LabeledSpan]) -> list[Finds]:
    return [*map(Finds, spans)]


def folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def lines_of(text: str) -> list[str]:
    return list(io.StringIO(text, newline=""))


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS, st.integers()), min_size=1, max_size=4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([(",", ":"), (" , ", " :  ")]),
)
def test_jsonl(rows, ascii_only, indent):
    objects = [{"a": {"text": [a]}, "text": text, "n": n, "b": a} for text, a, n in rows]
    raw = "".join(json.dumps(one, ensure_ascii=ascii_only, separators=indent) + "\r\n" for one in objects)
    records = list(records_of("jsonl", lines_of(raw), Columns(["text", "b"])))
    assert "".join(record.raw for record in records) == raw
    for record, one in zip(records, objects, strict=True):
        assert [field.text for field in record.fields] == [one["text"], one["b"]]
        redacted = redact_record(record, finds([LabeledSpan(0, len(one["text"]), "x")], []), Placeholders())
        if folded(one["text"]) in folded(one["b"]):
            continue  # it may be replaced there, too
        expected = one | ({"text": "[X_1]"} if one["text"] else {})
        assert json.loads(redacted.text) == expected
        assert restore(redacted.text, redacted.replacements).text == record.raw


def test_a_part_of_a_json_string_leaves_the_escapes_of_the_rest():
    line = '{"text": "caf\\u00e9 \\ud83d\\ude00\\n\\"Ada\\" \\/ é"}\n'
    (record,) = records_of("jsonl", [line], Columns(["text"]))
    start = record.fields[0].text.index("Ada")
    redacted = redact_record(record, finds([LabeledSpan(start, start + 3, "person")]), Placeholders())
    assert redacted.text == line.replace("Ada", "[PERSON_1]")


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=4),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    delimiter=st.sampled_from([",", ";", "\t"]),
)
def test_csv(rows, end, quoting, delimiter):
    if quoting == csv.QUOTE_MINIMAL:  # Python 3.11 leaves a lone \r without quotes, and reads it as the end of a row
        rows = [tuple(text.replace("\r", "\n") for text in row) for row in rows]
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([("id", "text"), *rows])
    raw = out.getvalue()
    header, *records = records_of("csv", lines_of(raw), Columns(["text"]), None, delimiter)
    assert "".join(record.raw for record in [header, *records]) == raw
    assert [field.text for record in records for field in record.fields] == [text for _, text in rows]
    redacted = [
        redact_record(
            record, finds(*([LabeledSpan(0, len(field.text), "x")] for field in record.fields)), Placeholders()
        )
        for record in records
    ]
    again = csv.reader(lines_of(header.raw + "".join(one.text for one in redacted)), delimiter=delimiter)
    assert list(again)[1:] == [[name, "[X_1]" if text else ""] for name, text in rows]
    assert [restore(one.text, one.replacements).text for one in redacted] == [record.raw for record in records]


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("jsonl", '{"text": "a"}\n{"text": \n', "line 2: Input data was truncated"),
        ("jsonl", '{"txt": "a"}\n', "line 1: no column 'text'; there are 'txt'"),
        ("jsonl", '{"text": ["a"]}\n', "line 1: text: must be a string or null"),
        ("jsonl", "[" * 100_000, "line 1: maximum recursion depth"),
        ("jsonl", "[1]\n", "line 1: must be a JSON object"),
        ("csv", "id,txt\n1,a\n", "no column 'text'"),
        ("csv", "id;text\n1;a\n", "it is only one column: is ';' the delimiter?"),
        ("csv", "id,text\n1,a\n2,a\rb\n", "line 4: 1 fields, the header has 2"),
        ("csv", 'id,text\n1,"a\n', "line 2: a quote is not closed"),
        ("csv", 'id,text\n1,a\n2,"a"b"c"\n', "line 3: a quote is inside a cell"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(kind, content, message):
    with pytest.raises(ValueError, match=message):
        list(records_of(kind, lines_of(content), Columns(["text"])))


@given(st.text(st.sampled_from('ab",\r\n '), max_size=12))
def test_every_cell_of_a_row_is_a_text_or_the_file_is_refused(rest):
    """Nothing that the standard library reads as a cell is left out of what is redacted."""
    raw = "a,b\n" + rest
    try:
        _, *records = records_of("csv", lines_of(raw), Columns(["a", "b"]))
    except ValueError:
        return
    assert [[field.text for field in record.fields] for record in records] == list(csv.reader(lines_of(raw)))[1:]
    assert "a,b\n" + "".join(record.raw for record in records) == raw


def test_a_quote_inside_a_cell_without_quotes_is_a_character():
    header, record = records_of("csv", lines_of('id,text\n1,5" Ada\n'), Columns(["text"]))
    assert (header.raw, record.fields[0].text) == ("id,text\n", '5" Ada')
    assert redact_record(record, finds([LabeledSpan(3, 6, "person")]), Placeholders()).text == '1,5" [PERSON_1]\n'


def test_what_is_found_in_one_text_of_a_record_is_replaced_in_all_of_them_but_where_it_is_allowed():
    line = '{"name": "Bob Ek", "note": "to BOB \\u0045k, not to Bob Ek Ltd", "n": "Bob Ek"}\n'
    (record,) = records_of("jsonl", [line], Columns(["name", "note"]))
    start = record.fields[1].text.index("Bob Ek Ltd")
    found = [Finds([LabeledSpan(0, 6, "person")]), Finds([], Listed([(start, start + 10)]))]
    redacted = redact_record(record, found, Placeholders())
    assert redacted.text == '{"name": "[PERSON_1]", "note": "to [PERSON_1], not to Bob Ek Ltd", "n": "Bob Ek"}\n'
    assert restore(redacted.text, redacted.replacements).text == line


def test_half_of_a_surrogate_pair_is_kept_and_read_as_another_character():
    line = r'{"text": "\ud83d Ada \\ud800 \ude00\ud83d\ude00", "text": "\ud800"}'
    (record,) = records_of("jsonl", [line], Columns(["text"]))
    assert [field.text for field in record.fields] == ["\ufffd Ada \\ud800 \ufffd\U0001f600", "\ufffd"]
    redacted = redact_record(record, finds([LabeledSpan(2, 5, "person")], [LabeledSpan(0, 1, "x")]), Placeholders())
    assert redacted.text == line.replace("Ada", "[PERSON_1]").replace(r'"\ud800"', '"[X_1]"')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def strings_in(value):
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in strings_in(one)]


@given(row=st.dictionaries(TEXTS, JSON, max_size=4), indent=st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_all_strings_of_a_record_are_its_texts(row, indent):
    line = json.dumps(row, separators=indent) + "\n"
    (record,) = records_of("jsonl", [line], Columns(["*"]))
    assert [field.text for field in record.fields] == strings_in(row)
    spans = ([LabeledSpan(0, len(field.text), "x")] for field in record.fields)
    redacted = redact_record(record, finds(*spans), lambda *_: "[X]")
    assert strings_in(json.loads(redacted.text)) == ["[X]" if text else "" for text in strings_in(row)]
    assert restore(redacted.text, redacted.replacements).text == line


def test_strings_that_are_passed_over_have_a_path():
    columns = Columns(["text"], kept=["id"])
    row = {"text": "a", "id": "b", "who": {"name": "c", "more": [{"x": "d"}, "e"]}, "": "f", "n": 1, "empty": ""}
    list(records_of("jsonl", [json.dumps(row)], columns))
    assert columns.unseen == ["who.name", "who.more[].x", "who.more[]", ""]


@pytest.mark.parametrize("depth", [10, 900, 5000])
def test_a_record_that_is_nested_deeply_is_read_or_refused(depth):
    """Not with a RecursionError, however many calls are under way."""
    line = '{"a": ' * depth + '"Ada"' + "}" * depth

    def outcome_below(calls):
        if calls:
            return outcome_below(calls - 1)
        try:
            return [field.text for record in records_of("jsonl", [line], Columns(["*"])) for field in record.fields]
        except ValueError as error:
            return str(error)

    for calls in range(0, 900, 100):
        outcome = outcome_below(calls)
        assert (outcome == ["Ada"] and depth < 5000) or ("recursion" in outcome and depth > 10)


def test_null_and_blank_lines_have_no_text():
    records = list(records_of("jsonl", ['{"text": null}\n', "\n", '{"text": "a"}'], Columns(["text"])))
    assert [len(record.fields) for record in records] == [0, 0, 1]


def test_a_text_of_any_length_with_values_that_begin_alike_is_redacted_in_linear_time(monkeypatch):
    """Comparisons are counted: a value is compared with what may be an occurrence, not with all that begin alike."""
    monkeypatch.setattr(known_values, "_MAX_COMPARISONS", 0)
    monkeypatch.setattr(known_values, "_MAX_FOUND", 100)
    monkeypatch.setattr(known_values, "_COMPARISONS_PER_CHAR", 4, raising=False)
    lines = [f"10.0.{number // 256}.{number % 256}, +49 30 {5_000_000 + number}\n" for number in range(2000)]
    text = "".join(lines) + lines[0]
    spans = [LabeledSpan(match.start(), match.end(), "x") for match in re.finditer(r"[\d.+][\d. ]+", "".join(lines))]
    (record,) = records_of("text", [text], Columns(["text"]))
    redacted = redact_record(record, finds(spans), Placeholders())
    assert len(redacted.replacements) == 2 * len(lines) + 2
    assert redacted.text.endswith("[X_3999], [X_4000]\n[X_1], [X_2]\n")


def test_the_cost_per_character_of_a_file_has_a_limit():
    text = "aa " * 3000
    spans = [LabeledSpan(start * 3, (start + length) * 3 - 1, "x") for start, length in enumerate(range(1000, 1400))]
    (record,) = records_of("text", [text], Columns(["text"]))
    with pytest.raises(LimitExceeded, match="too often"):
        redact_record(record, finds(spans), Placeholders())

"""Examples of each format, and what is said of faults."""

from __future__ import annotations

import json
import random

import pytest

from gliner_bento.files.evaluation import readers
from gliner_bento.files.evaluation.gold import Choice, Link, Span
from gliner_bento.files.evaluation.readers import read_gold

TEXT = "Ada Lovelace lived in London."
ADA, LONDON = Span(0, 12, "person"), Span(22, 28, "city")
LIVED = Link("Ada Lovelace", "lived in", "London")


def gold(tmp_path, name, content):
    path = tmp_path / name
    if not isinstance(content, str):
        content = json.dumps(content)
    path.write_text(content, encoding="utf-8")
    return read_gold(path)


@pytest.mark.parametrize(
    "record",
    [
        {"text": TEXT, "entities": [[0, 12, "person"], [22, 28, "city"]]},
        {
            "text": TEXT,
            "spans": [{"start": 0, "end": 12, "label": "person"}, {"start": 22, "end": 28, "label": "city"}],
        },
        {
            "text": TEXT,
            "ents": [{"start": 0, "end": 13, "label": "person "}, {"start": 21, "end": 28, "label": "city"}],
        },
        {"text": TEXT, "entities": [{"text": "Ada Lovelace", "label": "person"}, {"text": "London", "label": "city"}]},
        {"text": TEXT, "entities": {"person": ["Ada Lovelace"], "city": ["London"], "date": []}},
        {"text": TEXT, "label": [{"start": 0, "end": 12, "labels": ["person"]}, [22, 28, "city"]], "id": 3},
        [TEXT, {"entities": [[0, 12, "person"], [22, 28, "city"]]}],
        [TEXT, [[0, 12, "person"], [22, 28, "city"]]],
    ],
)
def test_a_record_has_entities_by_offsets_or_strings(record, tmp_path):
    for name, content in (("a.jsonl", "\ufeff" + json.dumps(record) + "\r\n\n"), ("a.json", [record])):
        (example,) = gold(tmp_path, name, content)
        assert (example.text, example.entities, example.relations) == (TEXT, {ADA, LONDON}, frozenset())


def test_a_string_is_each_of_its_whole_words_outside_of_longer_names(tmp_path):
    text = "Bill Gates met Gates, not Gateshead; Gates left."
    record = {"text": text, "entities": [{"text": "Gates", "label": "name"}, {"text": "Bill Gates", "label": "person"}]}
    (example,) = gold(tmp_path, "a.jsonl", record)
    assert example.entities == {Span(0, 10, "person"), Span(15, 20, "name"), Span(37, 42, "name")}


@pytest.mark.parametrize(
    "relation",
    [
        {"head": "Ada Lovelace", "relation": "lived in", "tail": "London"},
        {"head": {"start": 0, "end": 12}, "label": "lived in", "tail": {"text": "London"}},
        {"head": {"start": 0, "end": 12, "text": "Ada  Lovelace"}, "relation": "lived in", "tail": 1},
    ],
)
def test_a_relation_names_its_ends_by_string_offsets_or_index(relation, tmp_path):
    entities = [[0, 12, "person"], [22, 28, "city"]]
    (example,) = gold(tmp_path, "a.jsonl", {"text": TEXT, "entities": entities, "relations": [relation]})
    assert example.relations == {LIVED}


def task(**changes):
    """A task of Label Studio's export."""
    result = [
        {"id": "a", "type": "labels", "value": {"start": 0, "end": 12, "text": "Ada Lovelace", "labels": ["person"]}},
        {"id": "b", "type": "labels", "value": {"start": 22, "end": 28, "labels": ["city"]}},
        {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right", "labels": ["lived in"]},
        {"type": "choices", "from_name": "mood", "value": {"choices": ["calm"]}},
    ]
    return {"id": 1, "data": {"text": TEXT}, "annotations": [{"result": result}]} | changes


def test_an_export_of_label_studio(tmp_path):
    skipped = {"was_cancelled": True, "result": []}
    several = [{"result": []}, {**task()["annotations"][0], "ground_truth": True}]
    tasks = [task(), task(annotations=[skipped, *task()["annotations"]]), task(annotations=several)]
    for example in gold(tmp_path, "a.json", tasks):
        assert (example.text, example.entities, example.relations) == (TEXT, {ADA, LONDON}, {LIVED})
        assert (example.questions, example.choices) == ({"mood"}, {Choice("mood", "calm")})


def test_classes_are_a_label_or_several_and_entities_may_then_be_unknown(tmp_path):
    record = {"text": TEXT, "classifications": {"mood": "calm", "topic": ["law", "art"], "tone": []}}
    (example,) = gold(tmp_path, "a.jsonl", record)
    assert (example.entities, example.questions) == (None, {"mood", "topic", "tone"})
    assert example.choices == {Choice("mood", "calm"), Choice("topic", "law"), Choice("topic", "art")}
    (example,) = gold(tmp_path, "a.jsonl", record | {"entities": []})
    assert example.entities == frozenset()


@pytest.mark.parametrize(
    ("direction", "expected"), [("left", {LIVED[::-1]}), ("bi", {LIVED, LIVED[::-1]}), ("right", {LIVED})]
)
def test_the_direction_of_a_relation_in_label_studio(direction, expected, tmp_path):
    changed = task()
    changed["annotations"][0]["result"][2]["direction"] = direction
    (example,) = gold(tmp_path, "a.json", [changed])
    assert {tuple(link) for link in example.relations} == {tuple(link) for link in expected}


@pytest.mark.parametrize(
    "tags",
    [
        ["B-person", "I-person", "O", "O", "B-city"],
        ["I-person", "I-person", "O", "O", "I-city"],
        ["B-person", "E-person", "O", "O", "S-city"],
        ["B-person", "L-person", "O", "O", "U-city"],
    ],
)
@pytest.mark.parametrize("separator", [" ", "\t", " NN _ "])
def test_a_sentence_of_conll_is_its_words_with_spaces(tags, separator, tmp_path):
    words = ["Ada", "Lovelace", "lived", "in", "London"]
    lines = [f"{word}{separator}{tag}" for word, tag in zip(words, tags, strict=True)]
    sentence = "\r\n".join(lines)
    content = f"-DOCSTART- -X- O O\n\n# id 7\n{sentence}\n\n\n# O\nOslo B-city\nBergen B-city\n"
    first, second = gold(tmp_path, "a.conll", content)
    assert (first.text, first.entities) == (TEXT[:-1], {ADA, LONDON})
    assert (second.text, second.entities) == ("# Oslo Bergen", {Span(2, 6, "city"), Span(7, 13, "city")})
    assert (first.where, second.where) == (f"{tmp_path}/a.conll: line 4", f"{tmp_path}/a.conll: line 11")


def relation_of(**ends):
    return {"text": TEXT, "entities": [], "relations": [{"relation": "r", "head": "Ada", "tail": "London"} | ends]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a", "entities": []}\n{"text"', ": line 2: Input data was truncated"),
        ("a.jsonl", "[" * 99999, ": line 1: "),
        ("a.jsonl", [1], ": line 1: must be an object, or a pair of a text and its entities"),
        ("a.jsonl", {"body": "a", "entities": []}, ": line 1: text: must be a string"),
        ("a.jsonl", {"text": "a"}, ": line 1: entities: is missing; so are spans, ents, label and classifications"),
        ("a.jsonl", {"text": "a", "classifications": []}, ": line 1: classifications: must be an object"),
        ("a.jsonl", {"text": "a", "classifications": {"m": 1}}, "classifications.m: must be a string that is not empt"),
        ("a.jsonl", {"text": "a", "classifications": {"m": [""]}}, "classifications.m: must be a string that is not"),
        ("a.jsonl", {"text": "a", "entities": "b"}, ": line 1: entities: must be a list"),
        ("a.jsonl", {"text": "a", "entities": {"b": "a"}}, ": line 1: entities.b: must be a list of strings"),
        ("a.jsonl", {"text": "a", "entities": [1]}, "entities[0]: must be [start, end, label], or an object"),
        (
            "a.jsonl",
            {"text": "a", "spans": [[0, 1, "b"], [0, 2, "b"]]},
            "spans[1]: end: must be an integer from 0 to 1",
        ),
        ("a.jsonl", {"text": "a", "spans": [[True, 1, "b"]]}, "spans[0]: start: must be an integer"),
        ("a.jsonl", {"text": "a b", "spans": [[1, 2, "b"]]}, "spans[0]: end: no characters from 1 to 2"),
        ("a.jsonl", {"text": "a", "spans": [[0, 1, ""]]}, "spans[0]: label: must be a string that is not empty"),
        ("a.jsonl", {"text": "a", "spans": [{"start": 0, "end": 1}]}, "spans[0]: label: must be a string"),
        ("a.jsonl", {"text": "a", "spans": [{"start": 0, "end": 1, "labels": []}]}, "spans[0]: labels: must be a list"),
        ("a.jsonl", {"text": "Oslo", "entities": [{"text": "Os", "label": "b"}]}, "'Os' is not in the text"),
        ("a.jsonl", {"text": "Oslo", "entities": {"b": [7]}}, "entities[0]: start: must be an integer"),
        (
            "a.jsonl",
            {"text": "Oslo", "entities": [{"start": 0, "end": 2, "text": "Oslo", "label": "b"}]},
            "entities[0]: text: is 'Oslo', but there is 'Os' from 0 to 2",
        ),
        ("a.jsonl", relation_of(head="Bill"), "relations[0]: head: 'Bill' is not in the text"),
        ("a.jsonl", relation_of(tail=0), "relations[0]: tail: must be a string, offsets, or the index of an entity"),
        ("a.jsonl", relation_of(tail={"start": 5}), "relations[0]: tail: end: must be an integer"),
        ("a.jsonl", relation_of(relation=None), "relations[0]: relation: must be a string"),
        ("a.jsonl", {"text": "a", "entities": [], "relations": {}}, "relations: must be a list"),
        ("a.jsonl", {"text": "a", "entities": [], "relations": [1]}, "relations[0]: must be an object"),
        ("a.json", "{}", "a.json: must be a list; a file with an object in each line is .jsonl"),
        ("a.json", [task(), task(data={"body": "a"})], ": item 2: data.text: must be a string"),
        ("a.json", [task(annotations=None)], ": item 1: annotations: must be a list"),
        ("a.json", [task(annotations=[])], ": item 1: annotations: 0 in place of one"),
        (
            "a.json",
            [task(annotations=[{"result": []}] * 2)],
            "annotations: 2 in place of one; mark one as ground truth",
        ),
        ("a.json", [task(annotations=[{"result": [1]}])], ": item 1: result: must be a list of objects"),
        ("a.json", [task(annotations=[{"result": [{"value": {"start": 0, "end": 1}}]}])], "result[0]: labels: must be"),
        ("a.json", [task(data={"text": "Ada"})], ": item 1: result[0]: end: must be an integer from 0 to 3"),
        ("a.json", [task(annotations=[{"result": [{"value": {"choices": ["a"]}}]}])], "from_name: must name the class"),
        (
            "a.json",
            [task(annotations=[{"result": [{"from_name": "a", "value": {"choices": [1]}}]}])],
            ": item 1: choices: must be a list of names",
        ),
        (
            "a.json",
            [task(annotations=[{"result": [{"type": "relation", "from_id": [], "to_id": "b"}]}])],
            ": item 1: from_id: is no entity of the task",
        ),
        ("a.conll", "Oslo B-city\n\nOslo\n", ": line 3: must be a word and a tag such as B-person, I-person or O"),
        ("a.conll", "Oslo city\n", ": line 1: must be a word and a tag"),
        ("a.conll", "\n-DOCSTART- O\n", "a.conll: has no examples"),
        ("a.jsonl", "", "a.jsonl: has no examples"),
        ("a.jsonl", '\n{"text": "a", "score": NaN}', "a.jsonl: line 2: NaN is no JSON value; write null"),
        ("a.json", '[{"text": "a"},\n{"score": Infinity}]', "a.json: Infinity is no JSON value; write null"),
        (
            "a.spacy",
            "x",
            "a.spacy: the suffix must be one of .jsonl, .ndjson, .json, .conll, .bio, .iob, .tsv, .txt; or",
        ),
    ],
)
def test_a_fault_is_said_with_file_line_and_field(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=r"^\S+/a\.\w+: ") as error:
        gold(tmp_path, name, content)
    assert message in str(error.value)
    assert len(str(error.value)) < 1000


def test_a_file_that_is_not_text_too_large_or_no_file(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "\xff"}')
    with pytest.raises(ValueError, match=r"a\.jsonl: not UTF-8: byte 10$"):
        read_gold(tmp_path / "a.jsonl")
    monkeypatch.setattr(readers, "MAX_BYTES", 2**20)
    (tmp_path / "b.jsonl").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(ValueError, match=r"b\.jsonl: is larger than 1 MiB$"):
        read_gold(tmp_path / "b.jsonl")
    with pytest.raises(ValueError, match=r": must be a file$"):
        read_gold(tmp_path, "jsonl")


def test_a_lone_surrogate_of_json_is_read(tmp_path):
    (example,) = gold(tmp_path, "a.jsonl", '{"text": "\\ud800 Oslo", "entities": [[2, 6, "city"]]}')
    assert (example.text, example.entities) == ("\ufffd Oslo", {Span(2, 6, "city")})


def test_the_text_may_have_another_name(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([task(data={"body": TEXT}), {"body": TEXT, "entities": []}]))
    assert [example.text for example in read_gold(tmp_path / "a.json", None, "body")] == [TEXT, TEXT]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".conll"])
def test_a_damaged_file_is_read_or_is_one_error_with_its_name(suffix, tmp_path):
    rng = random.Random(1)
    record = {"text": TEXT, "entities": {"person": ["Ada Lovelace"]}, "relations": relation_of()["relations"]}
    pair = [TEXT, {"entities": [[0, 12, "person"], {"start": 22, "end": 28, "label": "city"}]}]
    sound = {
        ".jsonl": "\n".join(map(json.dumps, (record, pair))).encode(),
        ".json": json.dumps([task(), record]).encode(),
        ".conll": b"-DOCSTART- O\n\nAda B-person\nLovelace I-person\nlived O\n\n# in\nLondon NN S-city\n",
    }[suffix]
    path = tmp_path / f"a{suffix}"
    messages = []
    for _ in range(300):
        content = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(content))
            replaced = rng.choice([b"", b"null", b"-1", b"[", b"\xff", b"9", b'"', b"\n", b"\t", b"{}", b"1e9", b"O"])
            content[start : start + rng.randint(0, 8)] = replaced
        path.write_bytes(content)
        try:
            assert read_gold(path)
        except ValueError as error:
            messages.append(str(error))
    assert 100 < len(messages) < 300
    assert [text for text in messages if not text.startswith(f"{path}: ") or "\n" in text] == []

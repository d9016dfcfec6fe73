"""What a notebook shows of the client's answers, and their tables."""

from __future__ import annotations

import copy
import json
import re
import sys
from html import unescape

import pytest

from gliner_bento.client import calls
from gliner_bento.client.notebook import ExtractAnswer, ExtractBatchAnswer

TEXT = "Ada <b>Lovelace</b> lived in New York City & London."


def entity(text: str, label: str, within: str = TEXT) -> dict:
    start = within.index(text)
    return {"start": start, "end": start + len(text), "text": text, "label": label, "score": 0.5}


def answer(**fields: object) -> ExtractAnswer:
    head, tail = ({k: v for k, v in entity(*one).items() if k != "score"} for one in (("Ada", "x"), ("London", "y")))
    relation = {
        "relation": "lived in <i>",
        "score": 0.75,
        "head": {"entity_idx": 0, **head},
        "tail": {"entity_idx": 1, **tail},
    }
    content = {
        "entities": [entity("Ada", "<script>"), entity("New York City", "city"), entity("New York", "state")],
        "relations": [relation],
        **{"model": "demo", "adapter_id": None, "request_id": "1", **fields},
    }
    return calls.extract(TEXT, ["city"], {}).parse(json.dumps(content).encode())


def batch() -> ExtractBatchAnswer:
    found = {"entities": [entity("Ada", "person", "Ada")], "relations": []}
    failed = {"error": {"code": "invalid_field", "message": "<too> long"}}
    content = {"results": [{"result": found}, failed], "model": "demo", "request_id": "1"}
    return calls.extract_batch(["Ada", "x"], ["person"], {}).parse(json.dumps(content).encode())


def test_a_notebook_shows_the_whole_text_with_marked_entities_and_runs_nothing_of_it():
    html = answer(truncated=True, truncated_at=9, warnings=[{"code": "a", "message": "<odd>"}])._repr_html_() or ""
    assert set(re.findall(r"<(\w+)", html)) == {"div", "mark", "small"}
    shown, *lines = re.findall(r"<div[^>]*>(.*?)</div>", html)
    assert unescape(re.sub(r" <small>.*?</small>|</?mark.*?>", "", shown)) == TEXT
    marked = re.findall(r"<mark style=\"([^\"]*)\">(.*?)</mark>", shown)
    assert [text for _, text in marked] == [
        *("Ada <small>&lt;script&gt;</small>", "New York <small>state</small>", " City <small>city</small>")
    ]
    assert len({style for style, _ in marked}) == 3
    assert list(map(unescape, lines)) == [
        "Ada → lived in <i> → London (0.75)",
        "Warning: <odd>",
        "Only the first 9 characters were processed.",
    ]


def test_a_batch_shows_each_text_or_its_error_and_a_copy_shows_the_same():
    first, second = (batch()._repr_html_() or "").split("<hr>")
    assert "Ada <small>person</small>" in first
    assert second == "<div>&lt;too&gt; long</div>"
    for one in (answer(), batch()):
        assert copy.deepcopy(one) == one
        assert copy.deepcopy(one)._repr_html_() == one._repr_html_()


@pytest.mark.slow  # `make test-all` installs pandas
def test_tables_have_a_row_per_entity_or_relation_and_keep_errors():
    pytest.importorskip("pandas")
    table = answer().to_pandas()
    assert list(table.columns) == ["start", "end", "text", "label", "score"]
    assert list(table["text"]) == ["Ada", "New York City", "New York"]
    assert answer().to_pandas("relations").to_dict("records") == [
        {"head": "Ada", "relation": "lived in <i>", "tail": "London", "score": 0.75}
    ]
    table = batch().to_pandas()
    assert list(table["item"]) == [0, 1]
    assert table["text"][0] == "Ada"
    assert table["error"][1] == "<too> long"
    assert list(answer(entities=[]).to_pandas().columns) == ["start", "end", "text", "label", "score"]


def test_a_table_names_what_is_missing(monkeypatch):
    with pytest.raises(ValueError, match=r"rows: must be entities, relations, .* not 'words'"):
        answer().to_pandas("words")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas; install the extra dataframes"):
        answer().to_pandas()


VALUE = {"text": "<Ada>", "score": 0.75, "start": 0, "end": 5}
CHOICE = {"text": "poet", "score": 0.5, "start": None, "end": None}
RECORDS = {"person": [{"name": [VALUE], "work": [CHOICE, CHOICE]}, {"name": [VALUE], "work": []}], "place": []}


def test_structures_are_lines_and_rows():
    shown = answer(entities=[], relations=[], structures=RECORDS)
    lines = re.findall(r"<div>(.*?)</div>", shown._repr_html_() or "")
    assert list(map(unescape, lines)) == [
        "person: name: <Ada> (0.75); work: poet (0.50), poet (0.50)",
        "person: name: <Ada> (0.75)",
    ]
    pytest.importorskip("pandas")
    table = shown.to_pandas("structures")
    assert list(table["instance"]) == [0, 0, 0, 1]
    assert list(table.columns) == ["structure", "instance", "field", "text", "score", "start", "end"]
    assert list(table["field"]) == ["name", "work", "work", "name"]


@pytest.mark.slow  # `make test-all` installs them
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_the_classifications_and_structures_that_are_asked_for(library):
    frames = pytest.importorskip(library)
    from gliner_bento.integrations.dataframes import add_extractions

    classes = {"tone": {"labels": [{"label": "good", "score": 0.75}], "merge": None}}
    found = {"entities": [], "relations": [], "classifications": classes, "structures": RECORDS}
    failed = {"error": {"code": "invalid_field", "message": "too long"}}
    content = json.dumps({"results": [{"result": found}, failed], "model": "demo", "request_id": "1"}).encode()

    class Answers:
        def extract_many(self, texts, labels, **options):
            return calls.extract_batch(list(texts), labels, {}).parse(content).results

    asked = {"classifications": {"tone": ["good", "bad"]}, "structures": {"person": ["name", "work"], "place": ["x"]}}
    table = add_extractions(Answers(), frames.DataFrame({"text": ["a", "b"]}), ["city"], **asked)
    assert list(table.columns) == ["text", "entities", "relations", "classifications", "structures", "error"]
    assert table["classifications"].to_list()[0] == classes
    assert table["structures"].to_list()[0] == RECORDS
    assert [bool(error) for error in table["error"].to_list()] == [False, True]
    plain = add_extractions(Answers(), frames.DataFrame({"text": ["a", "b"]}), ["city"])
    assert list(plain.columns) == ["text", "entities", "relations", "error"]
    with pytest.raises(ValueError, match="must be strings, not int"):
        add_extractions(Answers(), frames.DataFrame({"text": [0, 0]}), ["city"])


def test_classifications_are_lines_and_rows():
    pandas = pytest.importorskip("pandas")
    labels = [{"label": "<good>", "score": 0.75}, {"label": "bad", "score": 0.25}]
    classes = {"tone": {"labels": labels, "merge": None}, "topic": {"labels": [], "merge": None}}
    shown = answer(entities=[], relations=[], classifications=classes)
    lines = re.findall(r"<div>(.*?)</div>", shown._repr_html_() or "")
    assert list(map(unescape, lines)) == ["tone: <good> (0.75), bad (0.25)", "topic: no label"]
    table = shown.to_pandas("classifications")
    assert isinstance(table, pandas.DataFrame)
    assert table.to_dict("records") == [{"classification": "tone", **label} for label in labels]

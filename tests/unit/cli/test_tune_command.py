"""The command line of tune, over a gateway whose model scores each capitalized word by its first letter."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from doubles.memory_replica import INFO, MemoryReplica

from gliner_bento import cli
from gliner_bento.process.instances import by_model
from gliner_bento.settings import Settings
from tests.unit.bulk.bulk_program import client

NEAR = {"head": "Aa", "relation": "near", "tail": "Ba"}
RECORDS = [{"text": "Aa and Ba and Za", "entities": {"city": ["Aa", "Ba"]}, "relations": [NEAR]}] * 6
SCORES = {"A": 0.9, "B": 0.42, "Z": 0.33, "relations": 0.3}


class Scored(MemoryReplica):
    """Entities below the item's threshold are left out."""

    def _result(self, item):
        result, ends = super()._result(item)
        lowest = item.label_thresholds.get("city", item.threshold)
        scored = [replace(one, score=SCORES[one.text[0]]) for one in result.entities]
        kept = [one for one in scored if one.score > lowest]
        texts = {one.text for one in kept}
        score = SCORES["relations"]
        relations = [replace(one, score=score) for one in result.relations if {one.head.text, one.tail.text} <= texts]
        return replace(result, entities=kept, relations=relations if item.relation_threshold < score else []), ends


@pytest.fixture
def gold(tmp_path, monkeypatch, commands_call):
    commands_call(lambda *_: client(Scored(replace(INFO, tasks=("entities", "relations")))))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "gold.jsonl", RECORDS)
    return tmp_path


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_the_thresholds_are_a_row_of_the_configuration(gold, capsys):
    assert cli.main(["tune", "gold.jsonl", "--model", "models/demo", "-o", "tuned.yaml"]) == 0
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("city"))
    assert row == ["city", "0.4", "66.7", "100.0", "100.0", "+33.3", "+33.3", "to", "+33.3", "50.0", "100.0", "12"]
    row = next(line.split() for line in out.splitlines() if line.startswith("near"))
    assert row[:5] == ["near", "0.25", "0.0", "100.0", "100.0"]
    assert "label_thresholds" not in out
    (own,) = by_model(Settings.load(file=gold / "tuned.yaml")).values()
    assert (own.label_thresholds, own.relation_thresholds) == ({"city": 0.4}, {"near": 0.25})
    assert cli.main(["tune", "gold.jsonl", "-o", "tuned.yaml"]) == 1
    assert "tune: tuned.yaml: exists; name a new file" in capsys.readouterr().err


def test_without_a_file_the_row_is_printed(gold, capsys):
    assert cli.main(["tune", "gold.jsonl", "--model", "a/b", "--labels", "city"]) == 0
    assert "\n      model: a/b\n      label_thresholds:\n        city: 0.4\n" in capsys.readouterr().out
    assert cli.main(["tune", "gold.jsonl", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["labels"]["thresholds"], result["relations"]["missed"]) == ({"city": 0.4}, [])


def test_relations_that_are_too_few_keep_their_threshold(gold, capsys):
    write(gold / "gold.jsonl", [*RECORDS[:4], RECORDS[4] | {"relations": []}])
    assert cli.main(["tune", "gold.jsonl", "--json"]) == 0
    written = capsys.readouterr()
    assert (json.loads(written.out)["relations"], written.err) == (
        None,
        "gliner-bento: tune: no relation is known 5 times; relations keep their threshold\n",
    )


def test_a_recall_out_of_reach_and_a_text_without_a_result_are_named(gold, capsys):
    lost = {"text": "nobody here", "entities": {"city": ["nobody"]}}
    write(gold / "gold.jsonl", [*RECORDS, lost, {"text": "Aa " * 40, "entities": []}])
    assert cli.main(["tune", "gold.jsonl", "--min-recall", "1", "--json"]) == 2
    written = capsys.readouterr()
    assert list(json.loads(written.out)["failed"]) == ["gold.jsonl: line 8"]
    assert "tune: city: the recall is below 1.0 with every threshold\n" in written.err


def test_the_scores_of_before_are_those_of_the_thresholds_that_are_given(gold, capsys, monkeypatch):
    """Also where these are lower than all that are tried."""
    monkeypatch.setitem(SCORES, "Z", 0.03)
    monkeypatch.setitem(SCORES, "relations", 0.02)
    start = ["--threshold", "0.01", "--relation-threshold", "0.005"]
    assert cli.main(["tune", "gold.jsonl", *start, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    city, near = result["labels"]["start"]["labels"]["city"], result["relations"]["start"]["labels"]["near"]
    assert [city[name] for name in ("right", "predicted", "gold")] == [12, 18, 12]
    assert [near[name] for name in ("right", "predicted", "gold")] == [6, 6, 6]


def test_texts_that_fail_with_relations_end_it_in_one_line(gold, capsys, commands_call):
    """One result is too few, though its text has enough relations."""

    def error(item):
        return ValueError() if item.relations and item.text == RECORDS[0]["text"] else None

    commands_call(lambda *_: client(Scored(replace(INFO, tasks=("entities", "relations")), error=error)))
    words = ["Aa", "Ba", "Ab", "Bb", "Ac", "Bc"]
    many = [{"head": words[0], "relation": "near", "tail": tail} for tail in words[1:]]
    write(gold / "gold.jsonl", [*RECORDS, {"text": " ".join(words), "entities": {"city": words}, "relations": many}])
    assert cli.main(["tune", "gold.jsonl"]) == 1
    message = "tune: cross-validation needs at least 2 examples with a result; there is 1"
    assert capsys.readouterr().err == f"gliner-bento: {message}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.jsonl"], "tune: one.jsonl: has one example; it takes two"),
        (["few.jsonl"], "tune: no label is known 5 times; there are too few examples to choose a threshold"),
        (["none.jsonl"], "tune: none.jsonl: has no entities; name labels with --labels"),
        (["bad.jsonl"], "tune: bad.jsonl: line 2: entities[0]: end: must be an integer from 0 to 1"),
        (["gone.jsonl"], "tune: gone.jsonl: No such file or directory"),
        (["gold.jsonl", "--min-recall", "90"], "argument --min-recall: must be a number from 0 to 1: 90"),
        (["gold.jsonl", "-o", "gone/a.yaml"], "tune: gone/a.yaml: No such file or directory"),
        (["gold.jsonl", "--adapter-id", "a"], "tune: --adapter-id: thresholds are of a model, and not of an adapter"),
        (["gold.jsonl", "--threshold", "2"], "tune: threshold: Input should be less than or equal to 1"),
    ],
)
def test_what_cannot_be_tuned_is_one_line_and_code_1(arguments, message, gold, capsys):
    write(gold / "one.jsonl", RECORDS[:1])
    write(gold / "few.jsonl", RECORDS[:2])
    write(gold / "none.jsonl", [{"text": "a", "entities": []}] * 2)
    write(gold / "bad.jsonl", [RECORDS[0], {"text": "a", "entities": [[0, 9, "city"]]}])
    assert cli.main(["tune", *arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err
    assert (written.err.count("\n"), written.out) == (1, "")

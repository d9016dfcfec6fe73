"""The command line of eval, over a gateway without a model: it finds each capitalized word, with the first label."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from doubles.memory_replica import INFO, MemoryReplica

from gliner_bento import cli
from tests.unit.bulk.bulk_program import client

RECORDS = [
    {"text": "from Oslo to Bergen", "entities": {"city": ["Oslo", "Bergen"]}},
    {"text": "then Anna left", "entities": {"person": ["Anna"]}},
    {"text": "and nobody saw it", "entities": []},
]


@pytest.fixture
def gold(tmp_path, monkeypatch):
    """A folder with examples, where commands run over a gateway without a model."""

    @asynccontextmanager
    async def clients(*_):
        yield [client(MemoryReplica(INFO))]

    monkeypatch.setattr("gliner_bento.cli.backend.clients", clients)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "gold.jsonl", RECORDS)
    return tmp_path


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def report(capsys, *arguments, code=0):
    assert cli.main(["eval", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_labels_are_those_of_the_examples(gold, capsys):
    answer = report(capsys, "gold.jsonl")
    exact = answer["exact"]
    assert list(exact["labels"]) == ["city", "person"]
    assert {name: exact["micro"][name] for name in ("right", "predicted", "gold")} == {
        "right": 2, "predicted": 3, "gold": 3,
    }  # fmt: skip
    assert exact["micro"]["f1"] == pytest.approx(2 / 3)
    assert answer["confusion"] == [
        {"gold": "city", "predicted": "city", "count": 2},
        {"gold": "person", "predicted": "city", "count": 1},
    ]
    assert (answer["model"], answer["texts"], answer["relations"], answer["failed"]) == ("memory", 3, None, {})


def test_tables_show_each_label_and_what_is_wrong(gold, capsys):
    assert cli.main(["eval", "gold.jsonl"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["memory,", "3", "texts"]
    assert ["person", "0.0", "0.0-0.0", "-", "0.0", "0", "0", "1"] in lines
    assert [line[:2] for line in lines if line[:1] == ["all"]] == [["all", "66.7"], ["all", "66.7"]]
    assert lines[-2:] == [["gold", "predicted", "number"], ["person", "city", "1"]]


def test_a_label_that_is_not_asked_for_is_left_out_and_named(gold, capsys):
    assert cli.main(["eval", "gold.jsonl", "--labels", "city", "--json"]) == 0
    written = capsys.readouterr()
    answer = json.loads(written.out)
    assert (answer["left_out"], list(answer["exact"]["labels"])) == ({"person": 1}, ["city"])
    assert written.err == "gliner-bento: eval: not asked for, and not scored: 1 person\n"


def test_relations_of_the_examples_are_asked_for(gold, capsys):
    relation = {"head": "Oslo", "relation": "near", "tail": "Bergen"}
    write(gold / "gold.jsonl", [RECORDS[0] | {"relations": [relation]}, RECORDS[1]])
    scored = report(capsys, "gold.jsonl")["relations"]["labels"]["near"]
    assert (scored["right"], scored["predicted"], scored["gold"], scored["f1"]) == (1, 1, 1, 1.0)


def test_relations_are_not_scored_if_the_model_has_none(gold, capsys, monkeypatch):
    @asynccontextmanager
    async def clients(*_):
        yield [client(MemoryReplica(replace(INFO, tasks=["entities"])))]

    monkeypatch.setattr("gliner_bento.cli.backend.clients", clients)
    relation = {"head": "Oslo", "relation": "near", "tail": "Bergen"}
    write(gold / "gold.jsonl", [RECORDS[0] | {"relations": [relation]}])
    answer = report(capsys, "gold.jsonl")
    assert (answer["relations"], answer["left_out"], answer["exact"]["micro"]["f1"]) == (None, {"near": 1}, 1.0)


@pytest.mark.parametrize(("least", "code"), [("0.66", 0), ("0.67", 2)])
def test_the_exit_code_is_2_below_the_lowest_f1(least, code, gold, capsys):
    assert report(capsys, "gold.jsonl", "--min-f1", least, code=code)["exact"]["micro"]["right"] == 2


def test_a_text_without_a_result_is_named_and_not_scored(gold, capsys):
    write(gold / "gold.jsonl", [{"text": "Oslo " * 40, "entities": [[0, 4, "city"]]}, *RECORDS])
    assert cli.main(["eval", "gold.jsonl", "--json"]) == 2
    written = capsys.readouterr()
    answer = json.loads(written.out)
    assert (list(answer["failed"]), answer["texts"]) == (["gold.jsonl: line 1"], 3)
    assert answer["exact"]["micro"]["gold"] == 3
    assert written.err.startswith("gliner-bento: eval: gold.jsonl: line 1: ")


def test_a_run_is_compared_with_an_earlier_one(gold, capsys):
    before = report(capsys, "gold.jsonl", "--labels", "person,city")  # all are persons: one of three is right
    (gold / "before.json").write_text(json.dumps(before))
    assert before["exact"]["micro"]["f1"] == pytest.approx(1 / 3)
    assert cli.main(["eval", "gold.jsonl", "--compare", "before.json"]) == 0
    written = capsys.readouterr()
    lines = [line.split() for line in written.out.splitlines()]
    assert "change" in lines[3]
    assert [line[3] for line in lines if line[:1] == ["all"]] == ["+33.3", "+33.3"]
    assert [line[3] for line in lines if line[:1] == ["person"] and line[3:]] == ["-50.0", "-50.0"]
    assert written.err == ""
    write(gold / "gold.jsonl", RECORDS[:1])
    assert cli.main(["eval", "gold.jsonl", "--compare", "before.json"]) == 0
    assert capsys.readouterr().err == "gliner-bento: eval: before.json: is of other examples\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.jsonl"], "eval: [Errno 2] No such file or directory: 'gone.jsonl'"),
        (["bad.jsonl"], "eval: bad.jsonl: line 2: text: must be a string"),
        (["none.jsonl"], "eval: none.jsonl: has no entities; name labels with --labels"),
        (["gold.jsonl", "--format", "conll"], "eval: gold.jsonl: line 1: must be a word and a tag"),
        (["gold.jsonl", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["gold.jsonl", "--min-f1", "80"], "argument --min-f1: must be a number from 0 to 1: 80"),
        (["gold.jsonl", "--min-f1", "nan"], "argument --min-f1: must be a number from 0 to 1: nan"),
        (["gold.jsonl", "--threshold", "2"], "eval: threshold: Input should be less than or equal to 1"),
        (["gold.jsonl", "--compare", "gold.jsonl"], "eval: gold.jsonl: is no output of eval --json: "),
        (["gold.jsonl", "--compare", "."], "eval: .: must be a file"),
    ],
)
def test_what_cannot_work_is_one_line_and_code_1(arguments, message, gold, capsys):
    write(gold / "bad.jsonl", [RECORDS[0], {"entities": []}])
    write(gold / "none.jsonl", RECORDS[2:])
    assert cli.main(["eval", *arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err
    assert (written.err.count("\n"), written.out) == (1, "")

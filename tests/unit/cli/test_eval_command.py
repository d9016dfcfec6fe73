"""The command line of eval, over a gateway without a model: it finds each capitalized word, with the first label."""

from __future__ import annotations

import json
import re
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
def gold(tmp_path, monkeypatch, commands_call):
    """A folder with examples, where commands run over a gateway without a model."""

    served(commands_call, lambda *_: INFO)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "gold.jsonl", RECORDS)
    return tmp_path


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def report(capsys, *arguments, code=0):
    assert cli.main(["eval", *arguments, "--json"]) == code
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    return run


def exact(run):
    return run["sections"]["entities, exact"]["scores"]


def served(commands_call, model_of):
    """Let commands run over models that `model_of` makes of their options and flags; returns the flags of each."""
    calls = []

    def make(options, flags):
        calls.append(flags)
        return client(MemoryReplica(model_of(options, flags)))

    commands_call(make)
    return calls


def test_the_labels_are_those_of_the_examples(gold, capsys):
    answer = report(capsys, "gold.jsonl")
    scores = exact(answer)
    assert list(scores["labels"]) == ["city", "person"]
    assert {name: scores["micro"][name] for name in ("right", "predicted", "gold")} == {
        "right": 2, "predicted": 3, "gold": 3,
    }  # fmt: skip
    assert scores["micro"]["f1"] == pytest.approx(2 / 3)
    assert answer["confusion"] == [
        {"kind": "entities", "gold": "city", "predicted": "city", "count": 2},
        {"kind": "entities", "gold": "person", "predicted": "city", "count": 1},
    ]
    assert (answer["name"], answer["texts"], answer["failed"]) == ("memory", 3, {})
    assert list(answer["sections"]) == ["entities, exact", "entities, overlapping"]


def test_tables_show_each_label_and_what_is_wrong(gold, capsys):
    assert cli.main(["eval", "gold.jsonl"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["memory:", "3", "texts"]
    assert ["person", "0.0", "0.0", "to", "0.0", "-", "0.0", "0", "0", "1"] in lines
    assert [line[:2] for line in lines if line[:1] == ["all"]] == [["all", "66.7"], ["all", "66.7"]]
    assert lines[-2:] == [["gold", "predicted", "number"], ["person", "city", "1"]]


def test_a_label_that_is_not_asked_for_is_left_out_and_named(gold, capsys):
    assert cli.main(["eval", "gold.jsonl", "--labels", "city", "--json"]) == 0
    written = capsys.readouterr()
    (answer,) = json.loads(written.out)["runs"]
    assert (answer["left_out"], list(exact(answer)["labels"])) == ({"person": 1}, ["city"])
    assert written.err == "gliner-bento: eval: not asked for, and not scored: 1 person\n"


def test_relations_of_the_examples_are_asked_for(gold, capsys):
    relation = {"head": "Oslo", "relation": "near", "tail": "Bergen"}
    write(gold / "gold.jsonl", [RECORDS[0] | {"relations": [relation]}, RECORDS[1]])
    scored = report(capsys, "gold.jsonl")["sections"]["relations"]["scores"]["labels"]["near"]
    assert (scored["right"], scored["predicted"], scored["gold"], scored["f1"]) == (1, 1, 1, 1.0)


CLASSIFIED = [
    {"text": "calm calm angry", "classifications": {"mood": "calm"}},
    {"text": "angry words", "classifications": {"mood": ["angry"]}, "entities": []},
    {"text": "so angry", "classifications": {"mood": "calm"}},
]


def test_classes_of_the_examples_are_asked_for_and_confused(gold, capsys):
    """The model chooses the label that is most of the text's words."""
    write(gold / "gold.jsonl", CLASSIFIED)
    answer = report(capsys, "gold.jsonl", "--min-f1", "0.7", code=2)
    assert list(answer["sections"]) == ["classes"], "no example has entities"
    scores = answer["sections"]["classes"]["scores"]
    assert [
        (label, score["right"], score["predicted"], score["gold"]) for label, score in scores["labels"].items()
    ] == [
        ("mood: angry", 1, 2, 1),
        ("mood: calm", 1, 1, 2),
    ]
    wrong = [one for one in answer["confusion"] if one["gold"] != one["predicted"]]
    assert wrong == [{"kind": "classes", "gold": "mood: calm", "predicted": "mood: angry", "count": 1}]


def test_a_classification_with_several_labels_at_a_time_is_asked_as_such(gold, capsys):
    several = {"text": "calm angry", "classifications": {"mood": ["calm", "angry"]}}
    write(gold / "gold.jsonl", [several, {"text": "dull", "classifications": {"mood": []}}])
    micro = report(capsys, "gold.jsonl")["sections"]["classes"]["scores"]["micro"]
    assert (micro["right"], micro["predicted"], micro["gold"]) == (2, 2, 2)


@pytest.mark.parametrize("task", ["relations", "classifications"])
def test_what_the_model_does_not_support_is_not_scored(task, gold, capsys, commands_call):
    served(commands_call, lambda *_: replace(INFO, tasks=["entities"]))
    more = {"relations": [{"head": "Oslo", "relation": "near", "tail": "Bergen"}], "classifications": {"near": "yes"}}
    write(gold / "gold.jsonl", [RECORDS[0] | {task: more[task]}])
    answer = report(capsys, "gold.jsonl")
    assert list(answer["sections"]) == ["entities, exact", "entities, overlapping"]
    assert answer["left_out"] == ({"near": 1} if task == "relations" else {"near: yes": 1})
    served(commands_call, lambda *_: replace(INFO, tasks=["structures"]))
    assert cli.main(["eval", "gold.jsonl"]) == 1
    assert "eval: the model supports structures, and the examples have nothing of that kind" in capsys.readouterr().err


@pytest.mark.parametrize(("least", "code"), [("0.66", 0), ("0.67", 2)])
def test_the_exit_code_is_2_below_the_lowest_f1(least, code, gold, capsys):
    assert exact(report(capsys, "gold.jsonl", "--min-f1", least, code=code))["micro"]["right"] == 2


def test_a_text_without_a_result_is_named_and_not_scored(gold, capsys):
    write(gold / "gold.jsonl", [{"text": "Oslo " * 40, "entities": [[0, 4, "city"]]}, *RECORDS])
    assert cli.main(["eval", "gold.jsonl", "--json", "--html", "out.html"]) == 2
    written = capsys.readouterr()
    (answer,) = json.loads(written.out)["runs"]
    assert (list(answer["failed"]), answer["texts"]) == (["gold.jsonl: line 1"], 3)
    assert exact(answer)["micro"]["gold"] == 3
    assert written.err.startswith("gliner-bento: eval: gold.jsonl: line 1: ")
    assert "1 of 1 texts with errors, of 4" in (gold / "out.html").read_text()


def test_models_and_precisions_are_measured_side_by_side(gold, capsys, commands_call):
    calls = served(commands_call, lambda _, flags: replace(INFO, model="x", tasks=["entities"]))
    columns = ["--model", "a", "--model", "big=b", "--dtype", "float32", "--dtype", "bf16", "--quantization", "int8"]
    assert cli.main(["eval", "gold.jsonl", *columns, "--device", "cpu", "--out", "out.json"]) == 0
    same = {"quantization": "int8", "device": "cpu"}
    assert calls == [
        same | {"model": "a", "dtype": "float32"},
        same | {"model": "a", "dtype": "bf16"},
        same | {"models": "big=b", "dtype": "float32"},
        same | {"models": "big=b", "dtype": "bf16"},
    ]
    names = [run["name"] for run in json.loads((gold / "out.json").read_text())["runs"]]
    assert names == ["a float32", "a bf16", "big float32", "big bf16"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a float32, a bf16, big float32, big bf16: 3 texts"
    (row,) = (line.split() for line in lines[:9] if line.startswith("big bf16"))
    assert row[2:] == ["66.7", "0.0", "to", "100.0", "66.7", "66.7", "+0.0", "+0.0", "to", "+0.0"]


def test_models_of_servers_are_measured_side_by_side(gold, capsys, commands_call):
    served(commands_call, lambda options, _: replace(INFO, model=options.model_name or "x"))
    servers = ["--url", "http://a", "--url", "http://b", "--model-name", "m", "--model-name", "n"]
    assert cli.main(["eval", "gold.jsonl", *servers]) == 0
    assert capsys.readouterr().out.startswith("http://a m, http://a n, http://b m, http://b n: 3 texts\n")


def test_a_run_is_compared_with_an_earlier_one(gold, capsys):
    assert cli.main(["eval", "gold.jsonl", "--labels", "person,city", "--out", "before.json", "--json"]) == 0
    before = capsys.readouterr().out  # all are persons: one of three is right
    assert before == (gold / "before.json").read_text()
    assert exact(json.loads(before)["runs"][0])["micro"]["f1"] == pytest.approx(1 / 3)
    write(gold / "gold.jsonl", RECORDS[::-1])  # the same examples
    assert cli.main(["eval", "gold.jsonl", "--compare", "before.json"]) == 0
    written = capsys.readouterr()
    lines = [line.split() for line in written.out.replace("memory (before)", "before").splitlines()]
    assert [line[7:] for line in lines if line[:1] == ["memory"]] == [["+33.3", "-100.0", "to", "+100.0"]] * 2
    assert next(line[1:5] for line in lines if line[:1] == ["person"]) == ["1", "50.0", "0.0", "-50.0"]
    assert written.err == ""


@pytest.mark.parametrize("others", [RECORDS[:1], [*RECORDS[:2], {"text": "and Cleo saw it", "entities": []}]])
def test_a_change_since_a_run_of_other_examples_has_no_interval(others, gold, capsys):
    assert cli.main(["eval", "gold.jsonl", "--labels", "person,city", "--out", "before.json"]) == 0
    capsys.readouterr()
    write(gold / "gold.jsonl", others)
    assert cli.main(["eval", "gold.jsonl", "--compare", "before.json"]) == 0
    written = capsys.readouterr()
    assert written.err == "gliner-bento: eval: before.json: memory: is of other examples\n"
    lines = [line.split() for line in written.out.replace("memory (before)", "before").splitlines()]
    overall = [line[7:] for line in lines if line[:1] == ["memory"]]
    assert [(change[:1], interval) for change, *interval in overall] == [("+", ["-"])] * 2
    assert [line[-1] for line in lines if line[:1] == ["city"]][:2] == ["-"] * 2


def test_models_that_failed_on_other_texts_are_not_paired(gold, capsys, commands_call):
    """Both score two texts of three."""

    def failing(_options, flags):
        name = {"a": "Anna", "b": "nobody"}[flags["model"]]
        return client(MemoryReplica(error=lambda item: ValueError() if name in item.text else None))

    commands_call(failing)
    assert cli.main(["eval", "gold.jsonl", "--model", "a", "--model", "b"]) == 2
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["a,", "b:", "2", "texts"]
    assert [line[-1] for line in lines if line[:1] in (["b"], ["city"])][:4] == ["-"] * 4


def test_the_worst_texts_are_a_page_of_their_own(gold, capsys):
    bad = {
        "text": "<script>Anna</script> met Bill & Co of Oslo",
        "entities": [[8, 12, "person"], [26, 36, "firm"], [26, 30, "person"]],
        "relations": [{"head": "Anna", "relation": "met <b>", "tail": "Bill"}],
    }
    write(gold / "gold.jsonl", [*RECORDS, bad, {"text": "far " * 24 + "Oslo", "entities": []}])
    assert cli.main(["eval", "gold.jsonl", "--html", "out.html"]) == 0
    content = (gold / "out.html").read_text()
    articles = re.findall("<article><h3>(.*?)</h3>", content)
    assert [article.split(": ")[1] for article in articles][:2] == ["line 4", "line 2"]
    assert "<script" not in content
    assert "http" not in content.replace("http-equiv", ""), "it loads nothing"
    labels = '<span class="label wrong">city</span><span class="label missed">person</span>'
    assert f'<mark class="missed">Anna</mark>{labels}' in content
    assert "&lt;script&gt;" in content and "met &lt;b&gt;" in content  # noqa: PT018
    known = content.split("<article>")[1].split("<dt>memory")[0]
    assert known.count('<mark class="right">') == 4, "Anna, Bill, & Co, and the relation"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.jsonl"], "eval: gone.jsonl: No such file or directory"),
        (["bad.jsonl"], "eval: bad.jsonl: line 2: text: must be a string"),
        (["none.jsonl"], "eval: none.jsonl: has no entities; name labels with --labels"),
        (["gold.jsonl", "--format", "conll"], "eval: gold.jsonl: line 1: must be a word and a tag"),
        (["gold.jsonl", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["gold.jsonl", "--min-f1", "80"], "argument --min-f1: must be a number from 0 to 1: 80"),
        (["gold.jsonl", "--min-f1", "nan"], "argument --min-f1: must be a number from 0 to 1: nan"),
        (["gold.jsonl", "--threshold", "2"], "eval: threshold: Input should be less than or equal to 1"),
        (["gold.jsonl", "--compare", "gold.jsonl"], "eval: gold.jsonl: is no output of eval --out: "),
        (["gold.jsonl", "--compare", "empty.json"], "eval: empty.json: is no output of eval --out: it has no scores"),
        (["gold.jsonl", "--compare", "."], "eval: .: must be a file"),
        (["gold.jsonl", "--out", "gold.jsonl"], "eval: gold.jsonl: would be overwritten"),
        (["gold.jsonl", "--out", "a", "--html", "./a"], "eval: a: would be overwritten"),
        (["gold.jsonl", "--html", "gone/a.html"], "eval: gone/a.html: No such file or directory"),
        (["gold.jsonl", "--url", "x", "--dtype", "bf16"], "eval: --dtype: is for a model in this process"),
        (["gold.jsonl", "--classify", "mood"], "--classify: 'mood': must be NAME=LABELS"),
    ],
)
def test_what_cannot_work_is_one_line_and_code_1(arguments, message, gold, capsys):
    write(gold / "bad.jsonl", [RECORDS[0], {"entities": []}])
    write(gold / "none.jsonl", RECORDS[2:])
    (gold / "empty.json").write_text('{"runs": []}')
    assert cli.main(["eval", *arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err
    assert (written.err.count("\n"), written.out) == (1, "")

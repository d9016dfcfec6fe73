"""The command line of bulk: one line and an exit code for what cannot work."""

from __future__ import annotations

import pytest

from gliner_bento import cli
from gliner_bento.cli import backend


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.jsonl", "-o", "out.xml", "--labels", "x"], "bulk: out.xml: must end in .jsonl, .jsonl.gz, .csv, .parquet"),
        (["a.jsonl", "-o", "out.csv", "--labels", "x", "--relations", "y"], "out.csv: CSV has a row for each entity"),
        (
            ["a.jsonl", "-o", "out.csv", "--structures", '{"x": ["y"]}'],
            "out.csv: CSV has a row for each entity, and no s",
        ),
        (["a.jsonl", "-o", "out.jsonl", "--structures", '["y"]'], '--structures: ["y"]: No such file'),
        (["a.jsonl", "-o", "out.jsonl", "--structures", '{"x": '], "--structures: invalid YAML"),
        (["a.jsonl", "-o", "out.jsonl", "--structures", '{"x": ' + "[" * 9999], "--structures: nested too deeply"),
        (["a.jsonl", "-o", "out.jsonl", "--structures", '{"x": []}'], "bulk: structures.x"),
        (["a.jsonl", "-o", "gone/out.jsonl", "--labels", "x"], "bulk: gone: no such folder"),
        (["a.jsonl", "-o", "out.jsonl"], "bulk: --labels or --labels-column is required"),
        (["a.jsonl", "-o", "out.jsonl", "--labels", "x", "--threshold", "2"], "bulk: threshold: Input should be less"),
        (["a.jsonl", "-o", "out.jsonl", "--lables", "x"], "unknown flag --lables; did you mean --labels?"),
        (["a.jsonl", "-o", "out.jsonl", "--labels", "x", "--url", "http://127.0.0.1:9"], "http://127.0.0.1:9: "),
        (["a.jsonl", "--labels", "x"], "the following arguments are required: -o/--output"),
    ],
)
def test_what_cannot_work_is_one_line_and_code_1(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    assert cli.main(["bulk", *arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err
    assert written.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("flag", "content", "expected"),
    [
        ("--labels", "person:\ncity: a town\n", {"person": "person", "city": "a town"}),
        ("--labels", "person: ~\ncity: {threshold: 0.3}\n", {"person": "person", "city": {"threshold": 0.3}}),
        ("--relations", '{"works for": null}', {"works for": "works for"}),
        ("--labels", "[person, city]", ["person", "city"]),
        ("--classify", "good:\nbad:\n", {"good": "good", "bad": "bad"}),
        ("--classify", "labels: [good, bad]\nmulti_label:\n", {"labels": ["good", "bad"], "multi_label": None}),
    ],
)
def test_a_name_without_a_description_in_a_file_is_a_name(flag, content, expected, tmp_path):
    (tmp_path / "names.yaml").write_text(content)
    assert backend.names(f"@{tmp_path}/names.yaml", flag) == expected

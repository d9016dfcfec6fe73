"""`gliner-bento eval` and `tune` with the bundled model in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gliner_bento import cli

GOLD = [
    {
        "text": "Bill Gates founded Microsoft in 1975.",
        "entities": [[0, 10, "person"], [19, 28, "organization"]],
        "relations": [{"head": 0, "relation": "founded", "tail": 1}],
    },
    {"text": "Ada Lovelace lived in London.", "entities": {"person": ["Ada Lovelace"], "city": ["London"]}},
]
WRONG = {"text": "Marie Curie worked in Paris.", "entities": {"city": ["Marie Curie"]}}
"""Not what the model finds: its entities are a wrong label, and one too many."""


def counts(labelled):
    label, score = labelled
    return label, score["right"], score["predicted"], score["gold"]


def without_checks(monkeypatch):
    for setting, value in (("SELF_TEST", "false"), ("BATCH_INVARIANT", "false"), ("WARMUP_ITERATIONS", "0")):
        monkeypatch.setenv(f"GLINER_{setting}", value)


def test_the_model_is_scored_on_known_entities_and_relations(tmp_path, capsys, monkeypatch):
    without_checks(monkeypatch)
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(record) + "\n" for record in [*GOLD, WRONG]))
    assert cli.main(["eval", str(tmp_path / "gold.jsonl"), "--json", "--min-f1", "0.9", "--dtype", "float32"]) == 2
    (report,) = json.loads(capsys.readouterr().out)["runs"]
    scores = {title: section["scores"]["labels"] for title, section in report["sections"].items()}
    for title in ("entities, exact", "entities, overlapping"):
        expected = [("city", 1, 2, 2), ("organization", 1, 1, 1), ("person", 2, 3, 2)]
        assert list(map(counts, scores[title].items())) == expected
    assert scores["relations"]["founded"]["f1"] == 1.0
    assert [(one["gold"], one["predicted"]) for one in report["confusion"] if one["gold"] != one["predicted"]] == [
        (None, "city"),
        ("city", "person"),
    ]


@pytest.mark.parametrize("name", ["news", pytest.param("desk", marks=pytest.mark.slow)])
def test_tuned_thresholds_give_a_server_the_scores_that_were_fitted(name, tmp_path, capsys, monkeypatch):
    """Of two sets with known answers: what `tune` computes is what the model does with the row that it writes."""
    without_checks(monkeypatch)
    gold, row = str(Path(__file__).parent / "gold" / f"{name}.jsonl"), str(tmp_path / "tuned.yaml")
    assert cli.main(["tune", gold, "--dtype", "float32", "-o", row, "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert cli.main(["eval", gold, "--dtype", "float32", "--config", row, "--json", "--min-f1", "0.9"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["runs"]
    for title, key in (("entities, exact", "labels"), ("relations", "relations")):
        scores = report["sections"][title]["scores"]
        fitted = tuned[key]["fitted"]
        assert list(map(counts, scores["labels"].items())) == list(map(counts, fitted["labels"].items()))
        assert tuned[key]["start"]["micro"]["f1"] <= scores["micro"]["f1"]
        assert tuned[key]["held_out"]["micro"]["f1"] <= scores["micro"]["f1"]
    assert set(tuned["labels"]["thresholds"].values()) != {0.5}, "the row changes something"

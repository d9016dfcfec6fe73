"""`gliner-bento eval` with the bundled model in this process."""

from __future__ import annotations

import json

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


def test_the_model_is_scored_on_known_entities_and_relations(tmp_path, capsys, monkeypatch):
    for setting, value in (("SELF_TEST", "false"), ("BATCH_INVARIANT", "false"), ("WARMUP_ITERATIONS", "0")):
        monkeypatch.setenv(f"GLINER_{setting}", value)
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(record) + "\n" for record in [*GOLD, WRONG]))
    assert cli.main(["eval", str(tmp_path / "gold.jsonl"), "--json", "--min-f1", "0.9", "--dtype", "float32"]) == 2
    (report,) = json.loads(capsys.readouterr().out)["runs"]
    scores = {title: section["scores"]["labels"] for title, section in report["sections"].items()}
    for title in ("entities, exact", "entities, overlapping"):
        counted = {label: (score["right"], score["predicted"], score["gold"]) for label, score in scores[title].items()}
        assert counted == {"city": (1, 2, 2), "organization": (1, 1, 1), "person": (2, 3, 2)}
    assert scores["relations"]["founded"]["f1"] == 1.0
    assert [(one["gold"], one["predicted"]) for one in report["confusion"] if one["gold"] != one["predicted"]] == [
        (None, "city"),
        ("city", "person"),
    ]

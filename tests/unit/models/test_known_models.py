"""The list of public models: `models list --known`, the page, and what its figures rest on."""

from __future__ import annotations

import json

import pytest

from gliner_bento import cli
from gliner_bento.cli.known_models import COLUMNS, known_models, row
from gliner_bento.settings.configuration import PROJECT_ROOT

MODELS = [model for use in known_models() for model in use.models]


def test_the_command_and_the_page_have_the_same_models(capsys):
    assert cli.main(["models", "list", "--known"]) == 0
    printed = capsys.readouterr().out
    page = (PROJECT_ROOT / "docs" / "which-model.md").read_text(encoding="utf-8")
    generated = page.partition("<!-- generated -->")[2]
    assert generated.count("\n| `") == len(MODELS) > 10
    for model in MODELS:
        assert f"\n{model.id} " in printed
        assert all(cell in printed and cell in generated for cell in row(model))
    assert cli.main(["models", "list", "--known", "--json"]) == 0
    uses = json.loads(capsys.readouterr().out)["uses"]
    assert [one["id"] for use in uses for one in use["models"]] == [model.id for model in MODELS]
    assert uses[0]["use"] == "personal data"


def test_a_speed_has_a_stored_result_and_a_row_has_all_columns():
    for model in MODELS:
        assert len(row(model)) == len(COLUMNS)
        assert (model.speed is None) == (model.measured is None)
        assert model.measured is None or (PROJECT_ROOT / model.measured).exists()
    assert len({model.id for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize("others", [["models"], ["--url", "http://localhost:1"]])
def test_known_models_are_listed_alone(others, capsys):
    assert cli.main(["models", "list", "--known", *others]) == 1
    assert "--known: lists public models; leave out folders and --url" in capsys.readouterr().err

"""Published checkpoints: those that gliner loads are served with its answers, others are refused in one line."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoints import LABELS, TEXTS, load_engine, named
from comparison import assert_same, extract_batch, extract_one, gliner_extraction, random_item
from form_folders import REFUSED, checkpoints_table, form_checkpoint, refused_table
from forms import FORMS
from gliner import GLiNER
from transformers import AutoConfig, AutoModel

from gliner_bento.engine.checkpoint import reasons
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.limits import token_limit
from gliner_bento.engine.checkpoint.reasons import reason
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.tasks.extraction import ExtractionItem as Item


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a checkpoint of a form: `published("v2.5")`."""
    return cache(lambda name: form_checkpoint(tmp_path_factory.mktemp(name), FORMS[name]))


def gliner_model(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GLiNER.from_pretrained(str(folder))


@pytest.mark.parametrize("name", FORMS)
def test_a_published_form_is_served_with_gliners_answers(name: str, published: Any) -> None:
    """In one batch, against gliner text by text."""
    served, gliner = load_engine(published(name)), gliner_model(published(name))
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(7)]
    entities = relations = 0
    for item, answer in zip(items, extract_batch(served, items), strict=True):
        try:
            expected = gliner_extraction(gliner, item)
        except RuntimeError:
            assert name == "decoder"  # gliner fails where its label decoder is given no span
            continue
        assert_same(answer, expected)
        entities += len(expected.entities)
        relations += len(expected.relations)
    assert entities > 20
    assert relations > 20 or not served.info.supports_relations
    assert served.info.forward.startswith("packed") is (FORMS[name].encoder == "packed")


@pytest.mark.parametrize("name", ["v1-v2-v2.1", "mt5", "llama", "albert", "distilbert", "mpnet"])
def test_a_text_longer_than_the_encoders_positions_is_cut(name: str, published: Any) -> None:
    text = " ".join(TEXTS * 40)
    answer = extract_one(load_engine(published(name)), Item(text, named(LABELS[:2]), long_text="truncate"))
    assert answer.truncated


@pytest.mark.parametrize(("backbone", "limit"), [("bart", 1024), ("gpt2", 1024)])
def test_positions_limit_other_backbones_too(backbone: str, limit: int) -> None:
    """Their tables of positions have other names than BERT's."""
    with torch.device("meta"):
        encoder = AutoModel.from_config(AutoConfig.for_model(backbone))
    assert token_limit(encoder, SimpleNamespace(model_max_length=10**30)) == limit


@pytest.mark.parametrize("name", REFUSED)
def test_what_gliner_cannot_use_is_refused_in_one_line(name: str, published: Any, tmp_path: Path) -> None:
    refused = REFUSED[name]
    folder = tmp_path / "checkpoint"
    shutil.copytree(published(refused.form), folder)
    refused.change(folder)
    with pytest.raises(ModelError, match=refused.message) as caught:
        load_engine(folder)
    assert "\n" not in str(caught.value)
    if refused.gliner is not None:
        with pytest.raises(Exception, match=refused.gliner):
            gliner_extraction(gliner_model(folder), Item(TEXTS[0], named(LABELS)))


def test_a_missing_package_for_sentencepiece_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """transformers itself raises that tiktoken is missing."""
    error = ValueError("`tiktoken` is required to read a `tiktoken` file. Install it with `pip install tiktoken`.")
    monkeypatch.setattr(reasons, "find_spec", lambda module: None if module == "google.protobuf" else object())
    assert reason(error, tmp_path) == "its tokenizer is a SentencePiece model, which needs: pip install protobuf"


def test_a_language_model_that_gliner_runs_in_one_direction_is_reported(published: Any, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "gliner_bento"):
        load_engine(published("llama"))
    assert "LlamaModel: attention is causal" in caplog.text


def test_the_page_of_models_has_every_form() -> None:
    page = (PROJECT_ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert checkpoints_table() in page
    assert refused_table() in page

"""Texts, labels and options: offsets, limits, errors."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import LABELS, POSITIONS, TEXTS, load_engine, named
from comparison import assert_same, extract_batch, extract_one, gliner_extraction, random_item
from safetensors.torch import load_file, save_file

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, InvalidField, ScoresNotFinite, TooLarge
from gliner_bento.tasks.extraction import ExtractionItem as Item

LIVELY = {"seed": 1}
PEOPLE = named(["person", "company", "city"])
UNICODE = [
    "👍🏽 Bill Gates 👩‍👩‍👧 founded Microsoft 🇫🇷",
    "Mu\u0308nchen, Zu\u0308rich, e\u0301e\u0301 Paris",
    "東京都、京都。日本語 Tokyo",
    "אנגלה Berlin שלום Paris مرحبا Tokyo",
    "имя Ada Lovelace имя",
    "\ufeffApple\u200b\u2028Bill\x00Gates\tin\u00a0Redmond\r\n",
    "𝒜da 𝓛ovelace in 𝔓aris",
]
NOTHING_TO_READ = ["\x00", "\u0301", "\u0301 \u0302\u0301", "\x01\x02 \x7f", "\u200b", "\u00ad"]


@pytest.fixture(scope="module")
def ner(engine: Any) -> GLiNEREngine:
    served: GLiNEREngine = engine("span", **LIVELY)
    return served


@pytest.fixture(scope="module")
def relex(engine: Any) -> GLiNEREngine:
    served: GLiNEREngine = engine("relex-span", **LIVELY)
    return served


@pytest.mark.parametrize("text", UNICODE)
def test_offsets_are_characters_of_the_text(text: str, ner: GLiNEREngine) -> None:
    answer = extract_one(ner, Item(text, PEOPLE, threshold=0.05, flat_ner=False))
    assert answer.entities
    assert all(text[entity.start : entity.end] == entity.text for entity in answer.entities)
    assert [entity.start for entity in answer.entities] == sorted(entity.start for entity in answer.entities)


@pytest.mark.parametrize("text", ["", " ", "\n\t  \u00a0", *NOTHING_TO_READ])
def test_a_blank_text_has_no_entities_and_no_tokens(text: str, ner: GLiNEREngine) -> None:
    prepared = ner.prepare(Item(text, PEOPLE, threshold=0.0))
    assert (prepared.tokens, prepared.words) == (0, 0)
    answer = extract_one(ner, Item(text, PEOPLE, threshold=0.0))
    assert (list(answer.entities), list(answer.relations), answer.usage.tokens) == ([], [], 0)


@pytest.mark.parametrize("family", ["span", "bi-token", "relex-token"])
def test_blank_texts_do_not_change_other_results(family: str, engine: Any) -> None:
    served = engine(family, **LIVELY)
    texts = [*NOTHING_TO_READ, *TEXTS, *UNICODE, "", "\ufffd", "\ufffd\x00"]
    items = [Item(text, PEOPLE, threshold=0.3) for text in texts]
    random.Random(0).shuffle(items)
    for item, answer in zip(items, extract_batch(served, items), strict=True):
        assert_same(answer, extract_one(served, item))


def test_words_without_tokens_do_not_shift_later_words(ner: GLiNEREngine) -> None:
    plain, littered = "Bill Gates founded Microsoft", "\u0301 Bill \x00\x00 Gates \u0301\u0302 founded \u0301 Microsoft"
    entities = extract_one(ner, Item(plain, PEOPLE, threshold=0.1, flat_ner=False)).entities
    moved = extract_one(ner, Item(littered, PEOPLE, threshold=0.1, flat_ner=False)).entities
    assert [e.label for e in entities] == [e.label for e in moved]
    assert [e.score for e in entities] == pytest.approx([e.score for e in moved], abs=1e-6)
    assert [e.text for e in entities if " " not in e.text] == [e.text for e in moved if " " not in e.text]


def test_the_model_gets_descriptions_and_results_have_names(relex: GLiNEREngine, reference: Any) -> None:
    item = Item(
        TEXTS[1],
        {"WER": "person", "WO": "city"},
        {"WOHNT": "lives in", "KOMMT": "born in"},
        threshold=0.3,
        relation_threshold=0.3,
    )
    answer = extract_one(relex, item)
    assert_same(answer, gliner_extraction(reference("relex-span", **LIVELY), item))
    assert {entity.label for entity in answer.entities} <= {"WER", "WO"}
    assert {relation.relation for relation in answer.relations} <= {"WOHNT", "KOMMT"}
    assert answer.entities
    assert answer.relations


def test_a_batch_may_mix_items_with_and_without_relations(relex: GLiNEREngine, reference: Any) -> None:
    items = [replace(random_item(seed, relations=True), relations=named(["founder"][: seed % 2])) for seed in range(20)]
    for item, answer in zip(items, extract_batch(relex, items), strict=True):
        assert_same(answer, gliner_extraction(reference("relex-span", **LIVELY), item))
        assert item.relations or not answer.relations


REFUSED: list[tuple[Item, type[GLiNERBentoError], str]] = [
    (Item("x", PEOPLE, adapter_id="customer-1"), AdapterNotFound, "adapter_id"),
    (Item("x", {}), InvalidField, "labels"),
    (Item("x", {"a": "same", "b": "same"}), InvalidField, "labels"),
    (Item("x", {"a": "\u0301"}), InvalidField, "labels"),
    (Item("x", {"a": "city <<ENT>> date"}), InvalidField, "labels"),
    (Item("x", {"a": "\udc00"}), InvalidField, "labels"),
    (Item("x \ud800", PEOPLE), InvalidField, "text"),
    (Item("x", named(["label " * POSITIONS])), InvalidField, "labels"),
]
REFUSED_RELATIONS: list[tuple[Item, type[GLiNERBentoError], str]] = [
    (Item("x", PEOPLE, {"a": "same", "b": "same"}), InvalidField, "relations"),
    (Item("x", PEOPLE, {"a": "\x00"}), InvalidField, "relations"),
    (Item("x", PEOPLE, {"a": "in <<REL>> of"}), InvalidField, "relations"),
    (Item("x", PEOPLE, named(["in " * POSITIONS])), InvalidField, "relations"),
]


@pytest.mark.parametrize(("item", "error", "param"), REFUSED)
def test_refuses_naming_the_field(item: Item, error: type[GLiNERBentoError], param: str, ner: GLiNEREngine) -> None:
    with pytest.raises(error) as raised:
        ner.prepare(item)
    assert raised.value.param == param
    raised.value.message.encode()


@pytest.mark.parametrize(("item", "error", "param"), REFUSED_RELATIONS)
def test_refuses_relations(item: Item, error: type[GLiNERBentoError], param: str, relex: GLiNEREngine) -> None:
    with pytest.raises(error) as raised:
        relex.prepare(item)
    assert raised.value.param == param


def test_refuses_relations_for_a_model_without_relations(ner: GLiNEREngine) -> None:
    with pytest.raises(InvalidField) as raised:
        ner.prepare(Item("x", PEOPLE, named(["founder"])))
    assert raised.value.param == "relations"


def test_accepts_the_base_models_adapter_id(ner: GLiNEREngine) -> None:
    assert ner.prepare(Item("x", PEOPLE, adapter_id="__base__")).tokens


def test_refuses_a_label_too_long_for_the_label_encoder(engine: Any) -> None:
    with pytest.raises(InvalidField) as raised:
        engine("bi-span", **LIVELY).prepare(Item("x", {"a": "person " * POSITIONS}))
    assert raised.value.param == "labels"


WORDY = "Bill Gates founded Microsoft in Redmond . " * 20
SUBWORDY = "Xylophonists Zygomorphically Quizzicality " * 5


@pytest.mark.parametrize(("family", "options"), [("span", {}), ("span", {"backbone": "deberta"}), ("bi-span", {})])
@pytest.mark.parametrize("text", [WORDY, SUBWORDY], ids=["too many words", "too many tokens"])
def test_truncates_a_long_text_at_a_word(family: str, options: dict[str, Any], text: str, engine: Any) -> None:
    served = engine(family, **LIVELY, **options)
    item = Item(text, PEOPLE, threshold=0.1, long_text="truncate")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = served.prepare(item)
        answer = extract_one(served, item)
    assert answer.truncated_at == prepared.truncated_at == prepared.payload.words[-1][1]
    assert answer.usage.words == prepared.words <= served.info.max_words == 48
    assert answer.usage.tokens == prepared.tokens <= POSITIONS
    assert prepared.words == 48 or prepared.tokens > POSITIONS - 15
    read = text[: prepared.payload.words[-1][1]]
    assert text[len(read)].isspace()
    assert_same(answer, extract_one(served, replace(item, text=read)))
    assert not served.prepare(replace(item, text=read, long_text="reject")).truncated_at
    with pytest.raises(TooLarge) as raised:
        served.prepare(replace(item, long_text="reject"))
    assert raised.value.param == "text"


def test_a_first_word_beyond_the_limit_truncates_at_0(ner: GLiNEREngine) -> None:
    for text in ("z" * 99 + "_" + "y" * 99, "q" * 60 + "-" + "q" * 80 + " Paris"):
        answer = extract_one(ner, Item(text, PEOPLE, threshold=0.0, long_text="truncate"))
        assert answer.truncated_at == (None if answer.usage.words else 0)


def test_a_truncated_text_is_not_tokenized_to_its_end(ner: GLiNEREngine) -> None:
    prepared = ner.prepare(Item("Paris " * 200_000, PEOPLE, long_text="truncate"))
    assert prepared.truncated_at


@pytest.mark.parametrize("family", ["span", "token", "relex-span", "relex-token"])
def test_threshold_0_has_a_bounded_cost(family: str, engine: Any) -> None:
    served = engine(family, **LIVELY)
    relations = named(["founder"]) if served.info.supports_relations else {}
    options = {"threshold": 0.0, "relation_threshold": 0.0, "flat_ner": False, "multi_label": True}
    options |= {"long_text": "truncate"}
    item = Item(WORDY, named(LABELS), relations, **options)
    answered = threading.Thread(target=lambda: answer_or_refuse(served, item), daemon=True)
    answered.start()
    answered.join(240)
    assert not answered.is_alive()


def answer_or_refuse(served: GLiNEREngine, item: Item) -> None:
    with contextlib.suppress(TooLarge):
        extract_one(served, item)


@pytest.mark.parametrize("family", ["span", "token", "relex-span"])
def test_scores_that_are_not_numbers_fail_the_item(family: str, checkpoint: Any, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(checkpoint(family, **LIVELY), tmp_path / family))
    file = broken / "model.safetensors"
    tensors = load_file(file)
    backbone = {name: torch.full_like(weight, torch.nan) for name, weight in tensors.items() if "bert_layer" in name}
    save_file(tensors | backbone, file)  # a head with such numbers is not loaded
    served = load_engine(broken)
    with pytest.raises(ScoresNotFinite):
        extract_one(served, Item(TEXTS[0], PEOPLE))


def test_a_refused_prompt_is_not_cached(ner: GLiNEREngine) -> None:
    cached = ner._preparer._tokenizer.prompts._cached
    size = cached.cache_info().currsize
    with pytest.raises(InvalidField, match="tokens"):
        ner.prepare(Item("x", named(["word " * POSITIONS])))
    assert cached.cache_info().currsize == size

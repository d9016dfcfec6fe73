"""Results with an adapter are gliner's with the adapter merged into its model, independent of batching."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoints import FAMILIES, TEXTS, load_engine
from comparison import assert_same, extract_batch, gliner_extraction, random_item
from lora_training import Trained, linears, serving, train

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.types import Extraction, Item

ATTENTION = ("query", "key", "value", "query_proj", "key_proj", "value_proj", "pos_key_proj", "pos_query_proj", "Wqkv")
KINDS = {
    "attention": lambda name: name.rsplit(".", 1)[-1] in ATTENTION,
    "heads": lambda name: not name.startswith("token_rep_layer."),
    "everything": lambda name: True,
}
CASES = [
    *((family, {"backbone": "bert", "seed": 1}) for family in FAMILIES),
    *((family, {"backbone": "deberta", "seed": 2}) for family in ("span", "bi-token", "relex-span", "relex-token")),
    ("span", {"backbone": "deberta-narrow", "seed": 3}),
    ("span", {"backbone": "modernbert", "seed": 3}),
    ("bi-span", {"backbone": "electra", "seed": 3}),
    ("span", {"backbone": "bert", "seed": 1, "span_mode": "marker"}),
    ("span", {"backbone": "bert", "seed": 1, "span_mode": "markerV2"}),
    ("span", {"backbone": "bert", "seed": 1, "fuse_layers": True}),
    ("span", {"backbone": "bert", "seed": 1, "hidden_size": 24}),
    ("bi-span", {"backbone": "bert", "seed": 1, "hidden_size": 24}),
    ("bi-token", {"backbone": "bert", "seed": 1, "represent_spans": True}),
    ("relex-span", {"backbone": "bert", "seed": 1, "relations_layer": "mlp"}),
    ("relex-span", {"backbone": "bert", "seed": 1, "relations_layer": "gat"}),
]
SLOTS = 3


def name_of(case: Any) -> str:
    return "-".join(map(str, case.values())) if isinstance(case, dict) else str(case)


@pytest.fixture(scope="module")
def adaptable(checkpoint: Any) -> Any:
    """An engine with slots: `adaptable(family, packing=True, padded=False, **options)`."""

    def loaded(family: str, packing: bool = True, padded: bool = False, **options: Any) -> GLiNEREngine:
        chosen = {"enable_lora": True, "max_device_adapters": SLOTS, "enable_sequence_packing": packing}
        return load_engine(checkpoint(family, **options), padded=padded, **chosen)

    return loaded


def asked_of(family: str, item: Item) -> Item:
    """gliner relates all spans that a token model proposes, in gigabytes for long texts: here they are few."""
    return replace(item, text=TEXTS[len(item.text) % 2], threshold=0.5) if family.startswith("relex-token") else item


def expected_of(model: Any, item: Item) -> Extraction:
    """gliner's result; its label decoder fails without spans."""
    try:
        return gliner_extraction(model, item)
    except RuntimeError as error:
        if "0 elements" not in str(error):
            raise
        return Extraction(())


@pytest.mark.parametrize(("family", "options"), CASES, ids=name_of)
def test_a_batch_of_adapters_gives_the_results_of_merged_models(
    family: str, options: dict[str, Any], adaptable: Any, reference: Any, tmp_path: Any
) -> None:
    """Packed and padded."""
    engines = [adaptable(family, packing, **options) for packing in (True, False)]
    gliner = reference(family, **options)
    adapters: dict[str, Trained] = {}
    for seed, (kind, wanted) in enumerate(KINDS.items()):
        adapters[kind] = train(gliner, tmp_path / kind, linears(engines[0], wanted), seed=seed, r=3 + 3 * seed)
    relations = engines[0].info.supports_relations
    without_effect = set(adapters)
    for batch in range(4):
        items = [asked_of(family, random_item(10 * batch + number, relations=relations)) for number in range(8)]
        names = [None, "attention", "heads", "everything", "everything", None, "heads", "attention"]
        adapted = [replace(item, adapter_id=name) for name, item in zip(names, items, strict=True)]
        expected = [expected_of(adapters[one.adapter_id].merged if one.adapter_id else gliner, one) for one in adapted]
        for engine in engines:
            with serving(engine, adapters):
                for answer, result in zip(extract_batch(engine, adapted), expected, strict=True):
                    assert_same(answer, result)
        for item, name, result in zip(items, names, expected, strict=True):
            if name in without_effect and result.entities != expected_of(gliner, item).entities:
                without_effect.remove(name)
        if not without_effect:
            return
    pytest.fail(f"a test of little: no effect of {without_effect}")


@pytest.mark.parametrize("options", [{"lora_bias": True}, {"use_rslora": True}, {"lora_dropout": 0.5}], ids=name_of)
@pytest.mark.parametrize("family", ["span", "token", "relex-span"])
def test_biases_and_scales_of_peft_are_applied(
    family: str, options: dict[str, Any], adaptable: Any, reference: Any, tmp_path: Any
) -> None:
    engine, gliner = adaptable(family, backbone="deberta", seed=2), reference(family, backbone="deberta", seed=2)
    trained = train(gliner, tmp_path, linears(engine), seed=5, r=4, **options)
    items = [random_item(seed, relations=engine.info.supports_relations) for seed in range(6)]
    with serving(engine, {"a": trained}):
        adapted = [replace(item, adapter_id=name) for item in items for name in ("a", None)]
        answers = extract_batch(engine, adapted)
    for number, item in enumerate(items):
        assert_same(answers[2 * number], gliner_extraction(trained.merged, item))
        assert_same(answers[2 * number + 1], gliner_extraction(gliner, item))


def test_labels_are_cached_per_adapter_that_changes_their_encoder(
    adaptable: Any, reference: Any, tmp_path: Any
) -> None:
    engine, gliner = adaptable("bi-span", backbone="bert", seed=1), reference("bi-span", backbone="bert", seed=1)
    reads_labels = [name for name in linears(engine) if "labels_encoder" in name]
    adapters = {
        "labels": train(gliner, tmp_path / "labels", reads_labels, seed=0),
        "text": train(gliner, tmp_path / "text", linears(engine, KINDS["heads"]), seed=1),
    }
    item, before = random_item(1, relations=False), engine.encoded_labels
    with serving(engine, adapters):
        for adapter, times in ((None, 1), ("labels", 2), ("text", 2), ("labels", 2), (None, 2)):
            extract_batch(engine, [replace(item, adapter_id=adapter)])
            assert engine.encoded_labels - before == times * len(item.labels)


@pytest.mark.parametrize("backbone", ["bert", "deberta", "modernbert"])
def test_a_padded_batch_of_adapters_as_on_a_gpu(
    backbone: str, adaptable: Any, reference: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, gliner = (
        adaptable("span", backbone=backbone, seed=3, padded=True),
        reference("span", backbone=backbone, seed=3),
    )
    adapters = {
        kind: train(gliner, tmp_path / kind, linears(engine, wanted), seed=seed)
        for seed, (kind, wanted) in enumerate(KINDS.items())
    }
    items = [random_item(seed, relations=False) for seed in range(8)]
    names = [None, "attention", "everything", "attention", "heads", None, "everything", "heads"]
    with serving(engine, adapters):
        adapted = [replace(item, adapter_id=name) for item, name in zip(items, names, strict=True)]
        answers = extract_batch(engine, adapted)
    for answer, item, name in zip(answers, items, names, strict=True):
        assert_same(answer, gliner_extraction(adapters[name].merged if name else gliner, item))

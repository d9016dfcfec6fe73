"""For each family: results are gliner's, and independent of batching."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from checkpoints import FAMILIES, LABELS, TEXTS, named
from comparison import assert_same, extract_batch, extract_one, gliner_extraction, random_item

from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

CASES = [
    *((family, {"backbone": "bert", "seed": 1}) for family in FAMILIES),
    *((family, {"backbone": "deberta", "seed": 2}) for family in ("span", "bi-token", "relex-span", "relex-token")),
    *(
        (family, {"backbone": backbone, "seed": 3})
        for family in ("span", "bi-token", "relex-span")
        for backbone in ("roberta", "modernbert")
    ),
    ("span", {"backbone": "deberta-narrow", "seed": 3}),
    ("bi-span", {"backbone": "electra", "seed": 3}),
    ("span", {"backbone": "convbert", "seed": 3}),
]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("span", {"span_mode": "markerV1"}),
    ("span", {"span_mode": "markerV2"}),
    ("span", {"span_mode": "marker"}),
    ("span", {"span_mode": "cat"}),
    ("span", {"span_mode": "conv_conv"}),
    ("span", {"span_mode": "conv_share"}),
    ("span", {"subtoken_pooling": "last"}),
    ("span", {"subtoken_pooling": "mean"}),
    ("span", {"subtoken_pooling": "max"}),
    ("span", {"embed_ent_token": False}),
    ("span", {"fuse_layers": True}),
    ("span", {"hidden_size": 24}),
    ("bi-span", {"hidden_size": 24}),
    ("span", {"span_encoder_config": {"model_type": "rnn"}}),
    ("bi-span", {"fuse_layers": True}),
    ("bi-span", {"post_fusion_schema": "l2l-l2t-t2t-t2l", "num_post_fusion_layers": 2}),
    ("bi-token", {"represent_spans": True}),
    ("relex-span-dot", {"embed_rel_token": False}),
    ("relex-span", {"relations_layer": "mlp"}),
    ("relex-span", {"relations_layer": "gat"}),
]
ALL = [*CASES, *((family, {"backbone": "bert", "seed": 1, **options}) for family, options in OPTIONS)]


def identifier(value: object) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@pytest.fixture(scope="module")
def expected_of(reference: Any) -> Callable[[str, Item, dict[str, Any]], Extraction | None]:
    """gliner's result of a family for an item, once for both layouts; None where its label decoder has no span."""
    known: dict[Any, Extraction | None] = {}

    def expected(family: str, item: Item, options: dict[str, Any]) -> Extraction | None:
        key = family, str(options), repr(item)
        if key not in known:
            known[key] = None
            with suppress(RuntimeError):
                known[key] = gliner_extraction(reference(family, **options), item)
        return known[key]

    return expected


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize(("family", "options"), ALL, ids=identifier)
def test_results_are_gliners(family: str, options: dict[str, Any], padded: bool, engine: Any, expected_of: Any) -> None:
    """Padded: in the layout of a GPU."""
    served = engine(family, padded=padded, **frozen(options))
    entities = relations = 0
    for seed in range(100):
        if seed > 8 and entities > 20 and (relations > 5 or not served.info.supports_relations):
            return
        item = random_item(seed, relations=served.info.supports_relations)
        expected = expected_of(family, item, frozen(options))
        if expected is None:
            assert "decoder" in family
            continue
        assert_same(extract_one(served, item), expected)
        entities += len(expected.entities)
        relations += len(expected.relations)
    pytest.fail(f"a test of little: {entities} entities, {relations} relations")


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize(("family", "options"), ALL, ids=identifier)
def test_results_do_not_depend_on_batching(family: str, options: dict[str, Any], padded: bool, engine: Any) -> None:
    served = engine(family, padded=padded, **frozen(options))
    items = [random_item(seed, relations=served.info.supports_relations) for seed in range(100, 108)]
    items += [Item(text, named(LABELS[:2]), threshold=0.3) for text in TEXTS]
    found = 0
    for item, answer in zip(items, extract_batch(served, items), strict=True):
        assert_same(answer, extract_one(served, item))
        found += len(answer.entities)
    assert found > 7


def frozen(options: dict[str, Any]) -> dict[str, Any]:
    """Options as hashable values."""
    return {name: HashableDict(value) if isinstance(value, dict) else value for name, value in options.items()}


class HashableDict(dict[str, Any]):
    """A dictionary that is never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

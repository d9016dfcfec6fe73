"""Packed encoders give the hidden states of transformers' models on each text."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from checkpoints import BACKBONES, HIDDEN, POSITIONS, draw_weights, needs_int8
from comparison import extract_one, random_item
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel

from gliner_bento.engine.encoders.deberta import PackedDeberta
from gliner_bento.engine.encoders.packed import (
    PackedBackbone,
    TextEncoder,
    in_blocks,
    in_padding,
    packed_backbone,
)
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.rows import TextRows

VOCABULARY = 50
Layout = Callable[[PackedBackbone], TextEncoder]
LAYOUTS: dict[str, Layout] = {
    "blocks": partial(in_blocks, length_multiple=1),
    "blocks of bucketed lengths": partial(in_blocks, length_multiple=8),
    "padded": in_padding,  # as on a GPU
}
BLOCKS = LAYOUTS["blocks"]

_LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}
CASES: dict[str, dict[str, Any]] = {
    "bert": BACKBONES["bert"],
    "bert-relu": BACKBONES["bert"] | {"hidden_act": "relu"},
    "roberta": BACKBONES["roberta"],
    "xlm-roberta": BACKBONES["roberta"]
    | {"model_type": "xlm-roberta", "pad_token_id": 1, "max_position_embeddings": POSITIONS + 2},
    "camembert": BACKBONES["roberta"]
    | {"model_type": "camembert", "pad_token_id": 1, "max_position_embeddings": POSITIONS + 2},
    "deberta": BACKBONES["deberta"],
    "deberta-narrow-embeddings": BACKBONES["deberta"] | {"embedding_size": 12},
    "deberta-own-position-keys": BACKBONES["deberta"] | {"share_att_key": False},
    "deberta-c2p": BACKBONES["deberta"] | {"pos_att_type": ["c2p"]},
    "deberta-p2c": BACKBONES["deberta"] | {"pos_att_type": ["p2c"], "share_att_key": False},
    "deberta-positions-as-they-are": BACKBONES["deberta"] | {"norm_rel_ebd": "none"},
    "deberta-without-buckets": BACKBONES["deberta"] | {"position_buckets": -1, "max_relative_positions": 12},
    "deberta-few-buckets": BACKBONES["deberta"] | {"position_buckets": 4},
    "modernbert": BACKBONES["modernbert"],
    "modernbert-biases": BACKBONES["modernbert"] | {"attention_bias": True, "mlp_bias": True, "norm_bias": False},
    "modernbert-near": BACKBONES["modernbert"]
    | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "local_attention": 2},
    "modernbert-relu": BACKBONES["modernbert"] | {"hidden_activation": "relu"},
    "modernbert-angles": BACKBONES["modernbert"]
    | {
        "rope_parameters": {"full_attention": _LINEAR, "sliding_attention": {"rope_type": "default", "rope_theta": 9.0}}
    },
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "electra": BACKBONES["electra"],
    "bert-tanh-gelu": BACKBONES["bert"] | {"hidden_act": "gelu_new"},
    "bert-decoder": BACKBONES["bert"] | {"is_decoder": True},
    "deberta-absolute": BACKBONES["deberta"] | {"position_biased_input": True},
    "deberta-types": BACKBONES["deberta"] | {"type_vocab_size": 2},
    "deberta-convolution": BACKBONES["deberta"] | {"conv_kernel_size": 3},
    "deberta-without-relations": BACKBONES["deberta"] | {"relative_attention": False},
    "deberta-content-only": BACKBONES["deberta"] | {"pos_att_type": []},
    "modernbert-tanh-gelu": BACKBONES["modernbert"] | {"hidden_activation": "gelu_pytorch_tanh"},
    "modernbert-dynamic": BACKBONES["modernbert"]
    | {"rope_parameters": {"full_attention": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}}},
}


@cache
def backbone(name: str, seed: int = 0) -> Any:
    """transformers' model, with random weights."""
    options = {**CASES, **UNKNOWN}[name]
    config = AutoConfig.for_model(**{"vocab_size": VOCABULARY, **options})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModel.from_config(config).eval()
        draw_weights(model)
    return model


@cache
def packed(name: str) -> PackedBackbone:
    encoder = packed_backbone(backbone(name), LayerFactory(backbone(name)))
    assert encoder is not None
    return encoder


def some_rows(lengths: list[int], seed: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(2, VOCABULARY, (length,), generator=draw) for length in lengths]  # 0 and 1 are for padding


def assert_gives_what_transformers_gives(
    encode: PackedBackbone, model: Any, lengths: list[int], layout: Layout, seed: int = 0
) -> None:
    rows = some_rows(lengths, seed)
    with torch.inference_mode():
        ours = layout(encode)(torch.cat(rows), TextRows(tuple(lengths)), None)
        theirs = torch.cat([model(row[None], torch.ones_like(row)[None])[0][0] for row in rows])
    assert ours.shape == (sum(lengths), HIDDEN)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_hidden_states_are_transformers(name: str, layout: Layout, lengths: list[int], seed: int) -> None:
    assert_gives_what_transformers_gives(packed(name), backbone(name), lengths, layout, seed)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("lengths", [[1], [1, 1, 1], [7, 7, 7], [POSITIONS, 1, 1, POSITIONS], [5, 6, 6, 5]], ids=str)
@pytest.mark.parametrize("name", ["bert", "roberta", "deberta", "modernbert"])
def test_hidden_states_at_the_length_limits(name: str, lengths: list[int], layout: Layout) -> None:
    assert_gives_what_transformers_gives(packed(name), backbone(name), lengths, layout)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("deberta")])
def test_distances_beyond_the_precomputed_ones_are_computed(name: str, layout: Layout) -> None:
    encode = PackedDeberta(backbone(name), LayerFactory(backbone(name)), reach=9)
    for length in (8, 9, 10, 40):
        assert_gives_what_transformers_gives(encode, backbone(name), [length, 3, length], layout)


@pytest.mark.parametrize("lengths", [[1], [3, 8, 9, 40], [POSITIONS, 5, POSITIONS]], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_hidden_states_of_bucketed_texts(name: str, lengths: list[int]) -> None:
    assert_gives_what_transformers_gives(packed(name), backbone(name), lengths, LAYOUTS["blocks of bucketed lengths"])


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_padding_token_may_be_in_a_text(name: str, layout: Layout) -> None:
    model = backbone(name)
    rows = some_rows([6, 9], seed=3)
    rows[0][2] = rows[1][0] = rows[1][8] = model.config.pad_token_id
    with torch.inference_mode():
        ours = layout(packed(name))(torch.cat(rows), TextRows((6, 9)), None)
        theirs = torch.cat([model(row[None], torch.ones_like(row)[None])[0][0] for row in rows])
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", ["bert", "deberta", "modernbert"])
def test_texts_do_not_depend_on_other_texts(name: str, layout: Layout) -> None:
    lengths = [9, 9, 4, 17]
    rows, others = some_rows(lengths, 1), some_rows(lengths, 2)
    encode, text_rows = layout(packed(name)), TextRows(tuple(lengths))
    with torch.inference_mode():
        before = encode(torch.cat(rows), text_rows, None).split(lengths)
        after = encode(torch.cat([rows[0], *others[1:]]), text_rows, None).split(lengths)
    torch.testing.assert_close(after[0], before[0], atol=1e-5, rtol=0)
    assert (after[1] - before[1]).abs().max() > 0.1


@needs_int8
@pytest.mark.parametrize("name", ["bert", "deberta", "modernbert"])
def test_quantized_layers_are_close(name: str) -> None:
    layers = LayerFactory(backbone(name), int8=True)
    encode = packed_backbone(backbone(name), layers)
    assert encode is not None
    lengths = [random.Random(0).randint(5, 40) for _ in range(8)]
    ids, rows = torch.cat(some_rows(lengths, 0)), TextRows(tuple(lengths))
    with torch.inference_mode():
        exact = BLOCKS(packed(name))(ids, rows, None)
        torch.testing.assert_close(BLOCKS(encode)(ids, rows, None), exact)
        errors = layers.quantize()
        rounded = BLOCKS(encode)(ids, rows, None)
    assert errors
    assert None not in errors.values()
    assert 1e-4 < (rounded - exact).norm() / exact.norm() < 0.2


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta", "modernbert"])
def test_bfloat16_is_near_float32(name: str) -> None:
    """At least as close to float32 as transformers' own."""
    options = CASES[name]
    model = AutoModel.from_config(AutoConfig.for_model(**{"vocab_size": VOCABULARY, **options})).eval()
    model.load_state_dict(backbone(name).state_dict())
    encode = packed_backbone(model.to(torch.bfloat16), LayerFactory(model))
    assert encode is not None
    lengths = [4, 4, 60, 61]
    rows, text_rows = some_rows(lengths, 0), TextRows(tuple(lengths))
    with torch.inference_mode():
        exact = BLOCKS(packed(name))(torch.cat(rows), text_rows, None)
        theirs = torch.cat([model(row[None], torch.ones_like(row)[None])[0][0] for row in rows])
        for layout in LAYOUTS.values():
            ours = layout(encode)(torch.cat(rows), text_rows, None)
            assert ours.dtype == torch.bfloat16
            errors = [(some.float() - exact).norm() / exact.norm() for some in (ours, theirs)]
            assert errors[0] < max(0.02, 1.2 * errors[1])


def test_modernbert_has_exact_rotary_angles_after_a_cast() -> None:
    """transformers casts its frequencies to the model's dtype."""
    config = backbone("modernbert").config
    cast, whole = (AutoModel.from_config(config).eval() for _ in range(2))
    cast.load_state_dict(backbone("modernbert").state_dict())
    whole.load_state_dict(cast.to(torch.bfloat16).float().state_dict())
    encode = packed_backbone(cast, LayerFactory(cast))
    assert encode is not None
    assert_gives_what_transformers_gives(encode, whole, [POSITIONS, 50], BLOCKS)
    with pytest.raises(AssertionError):
        assert_gives_what_transformers_gives(encode, cast, [POSITIONS, 50], BLOCKS)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_backbones_have_no_packed_form(name: str) -> None:
    assert packed_backbone(backbone(name), LayerFactory(backbone(name))) is None


@pytest.mark.parametrize("family", ["span", "bi-token"])
@pytest.mark.parametrize("name", ["bert", "roberta", "deberta", "modernbert"])
def test_reports_a_packed_encoder(family: str, name: str, engine: Any) -> None:
    served = engine(family, backbone=name, seed=3)
    assert served.packs
    assert served.info.forward.startswith(f"packed {type(backbone(name)).__name__}, ")


@pytest.mark.parametrize(
    ("options", "said", "packs"),
    [
        ({"backbone": "electra", "seed": 3}, "transformers' ElectraModel, ", False),
        ({"backbone": "bert", "seed": 3, "fuse_layers": True}, "transformers' BertModel text by text, ", True),
    ],
)
def test_reports_transformers_encoder(options: dict[str, Any], said: str, packs: bool, engine: Any) -> None:
    """Its results are compared with gliner's in test_engine_families."""
    served = engine("bi-span", **options)
    assert served.info.forward.startswith(said)
    assert served.packs == packs
    assert extract_one(served, random_item(0, relations=False)).usage.tokens > 0

"""The roofline's arithmetic, against operations counted by torch."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmark.roofline import encoder_flop, texts_per_s

DEBERTA_SMALL = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 6, "position_buckets": 256,
                 "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}  # fmt: skip


def test_an_encoders_operations_are_those_that_torch_counts():
    config = BertConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4)
    config._attn_implementation = "eager"  # torch counts no fused attention on a CPU
    model = BertModel(config, add_pooling_layer=False).eval()
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.ones(1, 37, dtype=torch.long))
    assert encoder_flop(config.to_dict(), 37) == counter.get_total_flops()


def test_deberta_pays_for_the_relative_positions_that_a_text_reaches():
    plain = DEBERTA_SMALL | {"relative_attention": False}
    assert encoder_flop(DEBERTA_SMALL, 10) - encoder_flop(plain, 10) == 6 * 2 * (2 * 10 * 20 * 768)
    assert encoder_flop(DEBERTA_SMALL, 400) - encoder_flop(plain, 400) == 6 * 2 * (2 * 400 * 512 * 768)
    assert encoder_flop(DEBERTA_SMALL, 62) == pytest.approx(5.6e9, rel=0.05)


def test_texts_per_second_is_the_machine_over_the_mean_text():
    each = encoder_flop(DEBERTA_SMALL, 50)
    assert texts_per_s(DEBERTA_SMALL, [50, 50], 4 * each) == pytest.approx(4.0)
    assert texts_per_s(DEBERTA_SMALL, [50, 100], each) < 1.0

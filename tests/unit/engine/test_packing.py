"""Attention over packed texts works on each text separately, in blocks or padded."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento.engine.layers.packing import Block, BlockLayout, PaddedLayout, bucket_size
from gliner_bento.engine.layers.rows import TextRows

CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)
HEADS, WIDTH = 2, 4


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block) -> torch.Tensor:
    """Softmax attention, written out."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k)
    if block.padding is not None:
        scores = scores.masked_fill(block.padding, -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


def random_qkv(lengths: list[int], seed: int = 0) -> torch.Tensor:
    return torch.randn(sum(lengths), 3, HEADS, WIDTH, generator=torch.Generator().manual_seed(seed))


def one_by_one(lengths: list[int], qkv: torch.Tensor) -> torch.Tensor:
    rows = qkv.split(lengths)
    return torch.cat([attend(*row[None].unbind(2), Block(1, len(row)))[0].flatten(1) for row in rows])


@settings(deadline=None)
@given(LENGTHS)
def test_on_a_cpu_only_adjacent_texts_of_equal_length_share_a_block(lengths: list[int]) -> None:
    layout = BlockLayout.of(TextRows(tuple(lengths)), 1)
    assert [block.length for block in layout.blocks for _ in range(block.texts)] == lengths
    assert len(layout.blocks) == len(list(groupby(lengths)))
    assert all(block.allowed is None for block in layout.blocks)


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(0, 99))
def test_padding_gives_each_text_its_own_contexts(lengths: list[int], seed: int) -> None:
    qkv = random_qkv(lengths, seed)
    torch.testing.assert_close(
        PaddedLayout.of(TextRows(tuple(lengths)), CPU).attend(attend, qkv), one_by_one(lengths, qkv)
    )


@settings(deadline=None)
@given(LENGTHS)
def test_a_padded_layout_has_the_index_and_mask_of_tokens(lengths: list[int]) -> None:
    layout = PaddedLayout.of(TextRows(tuple(lengths)), CPU)
    assert layout.mask.shape == (layout.block.texts, layout.block.length) == (len(lengths), max(lengths))
    assert layout.mask.sum(1).tolist() == lengths
    assert layout.index[layout.mask.flatten()].tolist() == list(range(sum(lengths)))
    assert layout.mask.flatten()[layout.cells].all()
    assert 0 <= int(layout.index.min()) <= int(layout.index.max()) < sum(lengths)


@settings(deadline=None)
@given(LENGTHS)
def test_positions_start_at_0_in_each_text(lengths: list[int]) -> None:
    positions = PaddedLayout.of(TextRows(tuple(lengths)), CPU).positions
    assert positions.tolist() == [place for length in lengths for place in range(length)]


@pytest.mark.parametrize("padded", [False, True])
def test_attention_does_not_mix_texts(padded: bool) -> None:
    lengths = [3, 3, 1, 5]
    qkv = torch.cat([random_qkv(lengths), torch.zeros(4, 3, HEADS, WIDTH)])  # the bucket has 16 tokens
    spoilt = qkv.clone()
    spoilt[3:6] = torch.nan
    rows = TextRows(tuple(lengths))
    layout = PaddedLayout.of(rows, CPU) if padded else BlockLayout.of(rows, 1)
    before, after = (layout.attend(attend, some)[: sum(lengths)].split(lengths) for some in (qkv, spoilt))
    for number in (0, 2, 3):
        assert torch.equal(before[number], after[number])
    assert after[1].isnan().all()


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.sampled_from([1, 4, 8]), st.integers(0, 1000))
def test_bucketed_texts_have_their_own_contexts_whatever_fills_them(
    lengths: list[int], length_multiple: int, seed: int
) -> None:
    qkv = torch.randn(sum(lengths), 3, HEADS, WIDTH, generator=torch.Generator().manual_seed(seed))
    layout = BlockLayout.of(TextRows(tuple(lengths)), length_multiple)
    assert all(length % length_multiple == 0 for length in layout.lengths)
    assert layout.size == bucket_size(sum(layout.lengths))
    spread = torch.full((layout.size, 3, HEADS, WIDTH), 50.0)
    spread[layout.is_token] = qkv
    contexts = layout.attend(attend, spread)
    torch.testing.assert_close(contexts[layout.is_token], one_by_one(lengths, qkv))
    assert not contexts[sum(layout.lengths) :].any()
    positions = layout.positions
    assert positions[layout.is_token].tolist() == [place for length in lengths for place in range(length)]
    assert not positions[~layout.is_token].any()


@pytest.mark.parametrize(("tokens", "rounded"), [(0, 16), (1, 16), (16, 16), (17, 32), (64, 64), (65, 128), (700, 704)])
def test_bucket_sizes(tokens: int, rounded: int) -> None:
    assert bucket_size(tokens) == rounded

"""Compiled operations equal eager ones, and give the same results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import load_engine
from comparison import assert_same, extract_one, random_item

from gliner_bento.engine.layers.kernels import EAGER, compiled

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="a CPU's compiled kernels need a C++ compiler"
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch's compiler
def test_compiled_operations_equal_eager_ones(checkpoint: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    fused = compiled()
    for rows, length in ((1, 9), (3, 20), (2, 1)):
        c2p, p2c = (torch.randn(rows, 4, length, 2 * length - 1, generator=draw) for _ in range(2))
        expected = EAGER.disentangled_bias(c2p, p2c)
        torch.testing.assert_close(fused.disentangled_bias(c2p, p2c), expected)
    start, end = torch.randn(2, 30, 16, generator=draw), torch.randn(2, 33, 16, generator=draw)
    for texts, at, words in ((2, 0, 30), (1, 5, 7), (1, 29, 1)):
        some = start[:texts, at : at + words], end[:texts, at : at + words + 3], 4
        torch.testing.assert_close(fused.relu_of_sums(*some), EAGER.relu_of_sums(*some))
    folder = str(Path(checkpoint("span", backbone="deberta", seed=2)))
    plain = load_engine(folder)
    served = load_engine(folder, enable_compilation=True)
    assert served.info.forward == f"{plain.info.forward}, compiled"
    found = 0
    for item in (random_item(seed, relations=False) for seed in range(6)):
        answer = extract_one(served, item)
        assert_same(answer, extract_one(plain, item))
        found += len(answer.entities)
    assert found > 5

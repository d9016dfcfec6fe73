"""The section on a GPU, where there is none: it says so, and the run goes on."""

import pytest

from benchmark.bench import Bench, Plan
from benchmark.job import NotMeasured
from benchmark.on_gpu import gpu

pytestmark = pytest.mark.long


def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NotMeasured, match="no CUDA device"):
        gpu(Bench(Plan(), tmp_path, tmp_path), "gpu")

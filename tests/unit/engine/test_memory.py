"""The budget of a batch, on a device with simulated memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import torch
from doubles.fake_engine import FakeEngine, extract
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from views import view

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.memory import RECOVERY_BATCHES, MemoryModel, calibrate, powers_of_two
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import DoesNotFit
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

MIB = 2**20
LONGEST = 512
PATIENCE_S = 240.0


class Device:
    """A `CudaAllocator` of `size_bytes`. A token takes `linear` bytes, and `quadratic` per token of its text."""

    def __init__(self, size_bytes: int, *, linear: int = 1000, quadratic: int = 0) -> None:
        self.size_bytes = size_bytes
        self.caches_emptied = 0
        self._linear = linear
        self._quadratic = quadratic
        self._peak_bytes = 0

    def run(self, rows: int, tokens: int) -> int:
        """A batch of texts of one length; its cost is its tokens."""
        self.charge([tokens] * rows)
        return rows * tokens

    def charge(self, lengths: Sequence[int]) -> None:
        """A batch of texts of these lengths."""
        taken = sum(self.bytes_of(tokens) for tokens in lengths)
        if taken > self.size_bytes:
            raise torch.OutOfMemoryError(f"{taken} bytes of {self.size_bytes}")
        self._peak_bytes = max(self._peak_bytes, taken)

    def bytes_of(self, tokens: int) -> int:
        return self._linear * tokens + self._quadratic * tokens**2

    def free_bytes(self) -> int:
        return self.size_bytes

    def reset_peak(self) -> None:
        self._peak_bytes = 0

    def peak_bytes(self) -> int:
        return self._peak_bytes

    def empty_cache(self) -> None:
        self.caches_emptied += 1


def model_of(device: Device, **options: float) -> MemoryModel:
    defaults = view(EngineOptions)
    given = {
        "target_memory_fraction": defaults.target_memory_fraction,
        "memory_overhead_factor": defaults.memory_overhead_factor,
        "lanes": defaults.inference_lanes,
    }
    return calibrate(device, device.run, longest_tokens=LONGEST, **given | options)  # type: ignore[arg-type]


def budget(tokens: int, least: int = 64) -> MemoryModel:
    """A budget without calibration."""
    return MemoryModel(Device(MIB), budget_tokens=tokens, least_tokens=least)


# Calibration


def test_lengths_double_up_to_the_longest() -> None:
    assert powers_of_two(512) == [64, 128, 256, 512]
    assert powers_of_two(600) == [64, 128, 256, 512, 600]
    assert powers_of_two(40) == [40]


def test_the_budget_is_a_share_of_free_memory_less_overhead() -> None:
    device = Device(100_000_000, linear=1000)
    assert model_of(device, target_memory_fraction=1.0, memory_overhead_factor=1.0).batch_tokens == 100_000
    assert model_of(device, target_memory_fraction=0.5, memory_overhead_factor=1.0).batch_tokens == 50_000
    assert model_of(device, target_memory_fraction=1.0, memory_overhead_factor=2.0).batch_tokens == 50_000
    assert model_of(device, target_memory_fraction=1.0, memory_overhead_factor=1.0, lanes=4).batch_tokens == 25_000


def test_the_budget_is_set_by_the_costliest_length() -> None:
    exact = {"target_memory_fraction": 1.0, "memory_overhead_factor": 1.0}
    assert (
        model_of(Device(100_000_000, linear=1000, quadratic=10), **exact).batch_tokens == 16_339
    )  # 6120 bytes a token


@settings(deadline=None)
@given(
    size=st.integers(1, 4000).map(lambda mib: mib * MIB),
    linear=st.integers(1, 5000),
    quadratic=st.integers(0, 40),
    lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=200),
    padded=st.booleans(),
    lanes=st.integers(1, 3),
)
def test_a_batch_under_the_budget_fits_the_device(
    size: int, linear: int, quadratic: int, lengths: list[int], padded: bool, lanes: int
) -> None:
    """Packed, a batch costs the sum of its texts; padded, their number times the longest."""
    device = Device(size, linear=linear, quadratic=quadratic)
    assume(lanes * 2 * LONGEST * (linear + quadratic * LONGEST) <= size)  # every probe runs, in every lane
    memory = model_of(device, lanes=lanes)
    batch: list[int] = []
    for tokens in lengths:
        grown = [max([*batch, tokens])] * (len(batch) + 1) if padded else [*batch, tokens]
        if sum(grown) <= memory.batch_tokens:
            batch = grown
    device.charge(batch * lanes)
    assert memory.batch_tokens >= 64


@settings(deadline=None)
@given(size=st.integers(1, 64).map(lambda mib: mib * MIB), linear=st.integers(1, 20_000), quadratic=st.integers(0, 100))
def test_a_device_too_small_for_some_probes_gets_batches_that_ran(size: int, linear: int, quadratic: int) -> None:
    device = Device(size, linear=linear, quadratic=quadratic)
    assume(device.bytes_of(64) <= size)
    memory = model_of(device)
    device.charge([64] * (memory.batch_tokens // 64))


def test_a_device_too_small_for_one_text_is_refused() -> None:
    with pytest.raises(DoesNotFit):
        model_of(Device(1000, linear=1000))


# Out of memory


def test_out_of_memory_becomes_does_not_fit_and_halves_the_budget() -> None:
    device = Device(100 * MIB)
    memory = model_of(device)
    full, emptied = memory.batch_tokens, device.caches_emptied
    with pytest.raises(DoesNotFit), memory.guard(full):
        raise torch.OutOfMemoryError("full")
    assert memory.batch_tokens == full // 2
    assert device.caches_emptied == emptied + 1


def test_the_error_holds_no_tensor_of_the_batch() -> None:
    """The tensors of a failed forward must be freed before the halves of its batch run."""
    freed = threading.Event()

    class Tensor:
        def __del__(self) -> None:
            freed.set()

    def forward() -> None:
        kept = Tensor()
        raise torch.OutOfMemoryError(f"no room beside {kept}")

    with pytest.raises(DoesNotFit) as caught, budget(1000).guard(1000):
        forward()
    assert freed.is_set()
    assert caught.value.__suppress_context__


def test_other_errors_pass_and_change_nothing() -> None:
    memory = budget(1000)
    with pytest.raises(ZeroDivisionError), memory.guard(1000):
        raise ZeroDivisionError
    assert memory.batch_tokens == 1000


@given(costs=st.lists(st.integers(1, 5000), max_size=60), least=st.integers(1, 500))
def test_the_budget_stays_between_the_least_and_the_measured(costs: list[int], least: int) -> None:
    memory = budget(4000, least)
    for number, cost in enumerate(costs):
        before = memory.batch_tokens
        if number % 3:
            memory.on_out_of_memory(cost)
            assert memory.batch_tokens <= before
        else:
            memory.on_success(cost)
        assert least <= memory.batch_tokens <= 4000


def test_never_goes_below_the_least() -> None:
    memory = budget(1000, least=300)
    for _ in range(10):
        memory.on_out_of_memory(memory.batch_tokens)
    assert memory.batch_tokens == 300


def test_an_item_over_the_budget_does_not_change_it() -> None:
    memory = budget(1000)
    memory.on_out_of_memory(1001)
    assert memory.batch_tokens == 1000


def test_lanes_that_fail_concurrently_halve_the_budget_once() -> None:
    memory = budget(1024)
    lanes = [threading.Thread(target=memory.on_out_of_memory, args=(1024,)) for _ in range(8)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert memory.batch_tokens == 512


# Recovery


def fill(memory: MemoryModel, batches: int) -> None:
    for _ in range(batches):
        with memory.guard(memory.batch_tokens):
            pass


def test_the_budget_grows_back_in_steps_up_to_the_measured_one() -> None:
    memory = budget(1000)
    memory.on_out_of_memory(1000)
    fill(memory, RECOVERY_BATCHES - 1)
    assert memory.batch_tokens == 500
    fill(memory, 1)
    assert memory.batch_tokens == 626
    fill(memory, 10 * RECOVERY_BATCHES)
    assert memory.batch_tokens == 1000


def test_small_batches_do_not_grow_the_budget() -> None:
    memory = budget(1000)
    memory.on_out_of_memory(1000)
    for _ in range(3 * RECOVERY_BATCHES):
        memory.on_success(250)
    assert memory.batch_tokens == 500


def test_another_failure_resets_the_count() -> None:
    memory = budget(1000)
    memory.on_out_of_memory(1000)
    fill(memory, RECOVERY_BATCHES - 1)
    memory.on_out_of_memory(2000)
    fill(memory, RECOVERY_BATCHES - 1)
    assert memory.batch_tokens == 500


# Through the scheduler


class DeviceEngine(FakeEngine):
    """A fake engine whose forward allocates memory of a device."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.memory = model_of(device)
        self.out_of_memory = 0
        self.batch_tokens = self.memory.batch_tokens

    def forward(self, collated: Sequence[Prepared], threads: int) -> list[Item]:
        """Padded: every text takes as much as the longest."""
        longest = max(prepared.tokens for prepared in collated)
        try:
            with self.memory.guard(len(collated) * longest):
                self.device.charge([longest] * len(collated))
        except DoesNotFit:
            self.out_of_memory += 1
            raise
        finally:
            self.batch_tokens = self.memory.batch_tokens
        return super().forward(collated, threads)


def answers(engine: DeviceEngine, items: Sequence[Item], lanes: int = 1) -> list[Extraction | BaseException]:
    """How each item ended, in order."""
    config = view(
        SchedulerConfig,
        max_batch_size=64,
        max_batch_tokens=10**9,
        queue_capacity=len(items),
        inference_lanes=lanes,
        batch_lookahead=len(items),
    )
    scheduler = Scheduler(engine, config)
    scheduler.start()
    try:
        futures = scheduler.submit_many(items, request_id="all")
        return [future.exception(PATIENCE_S) or future.result() for future in futures]
    finally:
        scheduler.close()


def text_of(words: int) -> Item:
    return Item(" ".join(["Word"] * words), {"name": "name"})


def test_no_batch_runs_out_of_memory_where_the_device_is_as_it_was_measured() -> None:
    engine = DeviceEngine(Device(10 * MIB, linear=1000, quadratic=5))
    items = [text_of(5 + 7 * number % 500) for number in range(200)]
    assert answers(engine, items) == [extract(item) for item in items]
    assert not engine.out_of_memory
    assert any(len(batch) > 1 for batch in engine.batches)


@pytest.mark.parametrize("lanes", [1, 3])
def test_items_that_fit_one_by_one_are_processed_after_memory_shrank(lanes: int) -> None:
    """Another process took most of the memory after calibration, and one item no longer fits."""
    engine = DeviceEngine(Device(64 * MIB, linear=1000))
    measured = engine.memory.batch_tokens
    engine.device.size_bytes = 550_000  # 550 tokens; the 64 that the budget never goes below fit
    items = [text_of(40 + number % 60) for number in range(100)]
    items[30] = text_of(700)
    ended = answers(engine, items, lanes)
    assert isinstance(ended[30], DoesNotFit)
    assert ended[:30] + ended[31:] == [extract(item) for item in items[:30] + items[31:]]
    assert engine.out_of_memory > 1
    assert 64 <= engine.memory.batch_tokens < measured

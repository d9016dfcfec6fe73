"""A batch reserves all its slots or none, in order; slots are written only while no batch has reserved them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import PATIENCE_S, wait_until

from gliner_bento.adapters.adapter import Adapter, LowRank
from gliner_bento.adapters.device import DeviceSlots, LoadedAdapter, load_for


class Recorder:
    """A sink that records what each slot has, and checks that no batch has reserved a slot that is written.

    broken: what cannot be written.
    """

    def __init__(self) -> None:
        self.contents: dict[int, str | None] = {}
        self.writes: list[tuple[int, str | None]] = []
        self.faults: list[str] = []
        self.broken: set[str] = set()
        self._held: Counter[int] = Counter()
        self._lock = threading.Lock()

    def prepare(self, updates: Mapping[str, LowRank]) -> Any:
        return "".join(updates) or None

    def write(self, slot: int, prepared: Any) -> None:
        with self._lock:
            if self._held[slot]:
                self.faults.append(f"slot {slot} was written while it was held")
            self.contents[slot] = None
            if prepared in self.broken:
                raise ArithmeticError(prepared)
            self.contents[slot] = prepared
            self.writes.append((slot, prepared))

    @contextmanager
    def batch(self, slot_of: Mapping[LoadedAdapter, int], adapters: Collection[LoadedAdapter]) -> Iterator[None]:
        """A batch runs with these slots while the context lasts."""
        self._check(slot_of, adapters)
        with self._lock:
            self._held.update(slot_of.values())
        try:
            yield
        finally:
            self._check(slot_of, adapters)
            with self._lock:
                self._held.subtract(slot_of.values())

    def _check(self, slot_of: Mapping[LoadedAdapter, int], adapters: Collection[LoadedAdapter]) -> None:
        if slot_of.keys() != set(adapters) or len({*slot_of.values()}) != len(slot_of):
            self.faults.append(f"{slot_of} are not the slots of {adapters}")
        for adapter, slot in slot_of.items():
            if self.contents[slot] != adapter.key[0]:
                self.faults.append(f"slot {slot} has {self.contents[slot]}, not {adapter.key[0]}")


def adapter_of(name: str, sinks: int = 1, *, version: str = "1", pinned: bool = False) -> LoadedAdapter:
    return LoadedAdapter((name, version), 1, (), (name,) * sinks, pinned)


class Bench:
    """Slots over recording sinks, and threads that reserve them."""

    def __init__(self, count: int, sinks: int = 1) -> None:
        self.written = 0
        self.sinks = [Recorder() for _ in range(sinks)]
        self.slots = DeviceSlots(self.sinks, count, self._count_written)
        self.threads: list[threading.Thread] = []
        self.left: list[str] = []

    def _count_written(self) -> None:
        self.written += 1

    @contextmanager
    def batch(self, adapters: Collection[LoadedAdapter]) -> Iterator[Mapping[LoadedAdapter, int]]:
        with self.slots.hold(adapters) as slot_of, ExitStack() as stack:
            for sink in self.sinks:
                stack.enter_context(sink.batch(slot_of, adapters))
            yield slot_of

    def contents(self) -> list[str | None]:
        """As reported by the slots and recorded by every sink."""
        said = [key and key[0] for key in self.slots.contents()]
        assert all(sink.contents.get(slot) == name for sink in self.sinks for slot, name in enumerate(said))
        return said

    def held(self) -> str:
        return "".join(sorted(key[0] for key in self.slots.state().in_use))

    def lane(self, name: str, adapters: Collection[LoadedAdapter]) -> tuple[threading.Event, threading.Event]:
        """A thread with a batch: the event that it sets when it has its slots, and the one that ends it."""
        has_slots, may_end = threading.Event(), threading.Event()

        def run() -> None:
            with self.batch(adapters):
                has_slots.set()
                assert may_end.wait(PATIENCE_S)
            self.left.append(name)

        self.threads.append(threading.Thread(target=run, name=name, daemon=True))
        self.threads[-1].start()
        return has_slots, may_end

    def waiting_lane(self, name: str, adapters: Collection[LoadedAdapter]) -> tuple[threading.Event, threading.Event]:
        """Such a thread, which waits for slots when this returns."""
        waiting = len(self.slots._queue) + 1
        events = self.lane(name, adapters)
        wait_until(lambda: len(self.slots._queue) == waiting)
        return events

    def end(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in self.threads)
        assert [fault for sink in self.sinks for fault in sink.faults] == []


def used(bench: Bench, *batches: Collection[LoadedAdapter]) -> list[str | None]:
    for adapters in batches:
        with bench.batch(adapters):
            pass
    bench.end()
    return sorted(bench.contents(), key=str)


A, B, C, D = (adapter_of(name) for name in "ABCD")


def test_each_adapter_has_a_slot_of_its_own() -> None:
    bench = Bench(3)
    with bench.batch({A, B}) as slot_of:
        assert len({slot_of[A], slot_of[B]}) == 2
        assert bench.held() == "AB"
    with bench.batch([C, A]):
        assert sorted(filter(None, bench.contents())) == ["A", "B", "C"]
    assert bench.held() == ""
    assert len(bench.sinks[0].writes) == 3
    bench.end()


def test_an_adapter_on_the_device_is_not_written_again() -> None:
    bench = Bench(2)
    for _ in range(3):
        with bench.batch([A, B]):
            pass
    assert (len(bench.sinks[0].writes), bench.written) == (2, 1)


def test_writes_are_synchronized_before_a_batch_uses_them() -> None:
    """After all writes of a batch, before it runs."""
    bench = Bench(2, sinks=2)
    seen = []
    bench.slots = DeviceSlots(bench.sinks, 2, lambda: seen.append([len(sink.writes) for sink in bench.sinks]))
    for adapters in ([adapter_of("A", 2), adapter_of("B", 2)], []):
        with bench.slots.hold(adapters):
            assert seen == [[2, 2]]


def test_batches_share_the_slot_of_an_adapter() -> None:
    bench = Bench(1)
    (first, end_first), (second, end_second) = bench.lane("1", [A]), bench.lane("2", [A])
    assert first.wait(PATIENCE_S)
    assert second.wait(PATIENCE_S)
    end_first.set()
    wait_until(lambda: bench.left == ["1"])
    assert bench.held() == "A"
    end_second.set()
    bench.end()
    assert bench.held() == ""


def test_a_batch_waits_for_all_its_slots_and_reserves_none_meanwhile() -> None:
    bench = Bench(2)
    with bench.batch([A]):
        has_slots, may_end = bench.waiting_lane("B and C", [B, C])
        assert bench.contents() == ["A", None]
        assert bench.held() == "A"
        assert not has_slots.is_set()
    assert has_slots.wait(PATIENCE_S)
    assert bench.held() == "BC"
    may_end.set()
    bench.end()


def test_a_waiting_batchs_own_adapters_do_not_count_as_free() -> None:
    """B waits for C's slot; B's own adapter, which no batch has reserved, is not a free slot for C."""
    bench = Bench(2)
    with bench.batch([B]):
        pass
    with bench.batch([A]):
        has_slots, may_end = bench.waiting_lane("B and C", [B, C])
        assert not has_slots.is_set()
    assert has_slots.wait(PATIENCE_S)
    may_end.set()
    bench.end()
    assert [name for _, name in bench.sinks[0].writes] == ["B", "A", "C"]


def test_batches_get_slots_in_order() -> None:
    bench = Bench(2)
    with bench.batch([A]):
        first, end_first = bench.waiting_lane("1", [B, C])
        second, end_second = bench.waiting_lane("2", [A])
        third, end_third = bench.waiting_lane("3", [B])
        assert not any(event.is_set() for event in (first, second, third))
    assert first.wait(PATIENCE_S)
    wait_until(lambda: len(bench.slots._queue) == 2)  # 2 and 3
    assert not any(event.is_set() for event in (second, third))
    end_first.set()
    assert second.wait(PATIENCE_S)
    assert third.wait(PATIENCE_S)
    end_second.set()
    end_third.set()
    bench.end()


def test_a_batch_without_adapters_reserves_nothing() -> None:
    bench = Bench(1)
    with bench.batch([A]), bench.batch([]) as slot_of:
        assert slot_of == {}
    assert bench.written == 1


def test_more_adapters_than_slots_are_refused() -> None:
    bench = Bench(2)
    with pytest.raises(ValueError, match="3 adapters do not fit 2 slots"), bench.slots.hold([A, B, C]):
        pass
    with bench.batch([A, B]):
        assert bench.held() == "AB"


def test_a_failing_batch_releases_its_slots() -> None:
    bench = Bench(1)
    with pytest.raises(ArithmeticError), bench.batch([A]):
        raise ArithmeticError
    assert bench.held() == ""
    with bench.batch([B]):
        assert bench.contents() == ["B"]


def test_a_batch_that_is_interrupted_while_it_waits_leaves_the_queue() -> None:
    bench = Bench(1)
    with pytest.raises(TypeError), bench.slots.hold([[]]):
        pass
    with bench.batch([A]):
        assert bench.held() == "A"


def test_state_has_resident_and_reserved_adapters() -> None:
    bench = Bench(3)
    room = bench.slots.state()
    assert (room.slots, room.resident, room.in_use) == (3, frozenset(), frozenset())
    used(bench, [A])
    with bench.batch([B]):
        room = bench.slots.state()
        assert (room.slots, room.resident, room.in_use) == (3, {A.key, B.key}, {B.key})


# Sinks that fail


def test_a_failed_write_leaves_a_free_slot() -> None:
    bench = Bench(2, sinks=3)
    bad, good = adapter_of("X", 3), adapter_of("A", 3)
    bench.sinks[1].broken = {"X"}
    used(bench, [adapter_of("B", 3)])
    for _ in range(3):
        with pytest.raises(ArithmeticError), bench.slots.hold([good, bad]):
            pass
        assert bench.held() == ""
        assert sorted(filter(None, (key and key[0] for key in bench.slots.contents()))) == ["A"]
    bench.sinks[1].broken = set()
    with bench.batch([good, bad]):
        assert sorted(filter(None, bench.contents())) == ["A", "X"]
    bench.end()


def test_batches_behind_a_failed_write_continue() -> None:
    bench = Bench(1)
    bench.sinks[0].broken = {"X"}
    failed = threading.Event()

    def fails() -> None:
        with pytest.raises(ArithmeticError), bench.slots.hold([adapter_of("X")]):
            pass
        failed.set()

    with bench.batch([A]):
        bench.threads.append(threading.Thread(target=fails, daemon=True))
        bench.threads[-1].start()
        wait_until(lambda: len(bench.slots._queue) == 1)
        has_slots, may_end = bench.waiting_lane("B", [B])
    assert has_slots.wait(PATIENCE_S)
    may_end.set()
    bench.end()
    assert failed.is_set()


def test_a_failed_synchronization_releases_the_slots() -> None:
    def fails() -> None:
        raise ArithmeticError

    slots = DeviceSlots([Recorder()], 1, fails)
    with pytest.raises(ArithmeticError), slots.hold([A]):
        pass
    assert slots.state().in_use == frozenset()


def test_an_adapter_is_prepared_for_every_sink() -> None:
    updates = {name: LowRank(torch.ones(2, 3), torch.ones(3, 2), None) for name in ("b", "a")}
    made = load_for([Recorder(), Recorder()], ("A", "1"), Adapter(2, updates), pinned=True)
    assert (made.key, made.rank, made.targets, made.prepared) == (("A", "1"), 2, ("a", "b"), ("ba", "ba"))
    assert made.pinned


# Any order


ALL = [adapter_of(name, pinned=name in "XY") for name in "ABCDXY"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sets(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("forget"), st.integers(0, 5)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(count=st.integers(1, 4), steps=STEPS)
def test_batches_that_begin_and_end_in_any_order(count: int, steps: list[tuple[str, Any]]) -> None:
    """Random reservations: no reserved adapter is evicted, and eviction follows its order."""
    bench = Bench(count)
    running: list[tuple[ExitStack, set[LoadedAdapter]]] = []
    last_use = dict.fromkeys(ALL, 0)
    for now, (step, which) in enumerate(steps, start=1):
        before = dict(enumerate(bench.slots.contents()))
        by_key = {adapter.key: adapter for adapter in ALL}
        held = set().union(*(adapters for _, adapters in running))
        if step == "begin":
            adapters = {ALL[number] for number in which}
            if len(held | adapters) > count:
                continue
            stack = ExitStack()
            stack.enter_context(bench.batch(adapters))
            running.append((stack, adapters))
            after = dict(enumerate(bench.slots.contents()))
            gone = [by_key[key] for slot, key in before.items() if key and after[slot] != key]
            stayed = [by_key[key] for key in after.values() if key and by_key[key] not in held | adapters]
            assert not set(gone) & (held | adapters)
            assert not (gone and None in after.values())
            assert all(
                (one.pinned, last_use[one]) < (other.pinned, last_use[other]) or last_use[one] == last_use[other]
                for one in gone
                for other in stayed
            )
            last_use |= dict.fromkeys(adapters, now)
        elif step == "end" and running:
            running.pop(which % len(running))[0].close()
        elif step == "forget":
            bench.slots.forget(ALL[which].key)
            assert (ALL[which].key in bench.slots.contents()) == (ALL[which] in held)
        held = set().union(*(adapters for _, adapters in running))
        assert bench.slots.state().in_use == {adapter.key for adapter in held}
        assert bench.slots.state().resident == {*filter(None, bench.slots.contents())}
    for stack, _ in running:
        stack.close()
    bench.end()
    bench.contents()


@pytest.mark.usefixtures("_busy_threads")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_lane_waits_for_ever_under_load(count: int) -> None:
    """Four lanes; sometimes an adapter is forgotten, and one cannot be written."""
    bench = Bench(count, sinks=2)
    adapters = [adapter_of(name, 2, pinned=name == "P") for name in "ABCDEPX"]
    bench.sinks[1].broken = {"X"}
    failures: list[BaseException] = []
    ran: Counter[int] = Counter()

    def lane(seed: int) -> None:
        draw = random.Random(f"{count} {seed}")
        for _ in range(200):
            chosen = draw.sample(adapters, draw.randint(0, count))
            try:
                with bench.batch(chosen):
                    if draw.random() < 0.1:
                        bench.slots.forget(draw.choice(adapters).key)
                    ran[seed] += 1
            except ArithmeticError:
                assert "X" in [adapter.key[0] for adapter in chosen]
            except BaseException as error:
                failures.append(error)

    bench.threads = [threading.Thread(target=lane, args=(seed,), daemon=True) for seed in range(4)]
    for thread in bench.threads:
        thread.start()
    bench.end()
    assert failures == []
    assert all(ran[seed] > 10 for seed in range(4))
    assert bench.held() == ""


# Which adapters leave the device: the least recently used, pinned ones last, and those that are forgotten


def test_the_least_recently_used_is_evicted() -> None:
    assert used(Bench(2), [A], [B], [C]) == ["B", "C"]
    assert used(Bench(2), [A], [B], [A], [C]) == ["A", "C"]
    assert used(Bench(3), [A], [B], [C], [B], [A, D]) == ["A", "B", "D"]


def test_a_free_slot_is_taken_first() -> None:
    bench = Bench(2)
    used(bench, [A], [B])
    bench.slots.forget(B.key)
    assert used(bench, [C]) == ["A", "C"]


def test_pinned_adapters_are_evicted_last() -> None:
    pinned, other = adapter_of("P", pinned=True), adapter_of("Q", pinned=True)
    assert used(Bench(2), [pinned], [A], [B], [C]) == ["C", "P"]
    assert used(Bench(2), [pinned], [other], [A]) == ["A", "Q"]
    assert used(Bench(2), [pinned], [A], [B, C]) == ["B", "C"]


def test_pinning_takes_effect_with_the_next_batch() -> None:
    bench, pinned = Bench(2), adapter_of("P")
    used(bench, [pinned], [A])
    pinned.pinned = True
    assert used(bench, [B]) == ["B", "P"]


def test_another_version_is_another_adapter() -> None:
    bench, newer = Bench(2), adapter_of("A", version="2")
    used(bench, [A], [newer])
    assert set(bench.slots.contents()) == {("A", "1"), ("A", "2")}


def test_forgetting_an_adapter_frees_its_slot() -> None:
    bench = Bench(2, sinks=2)
    a, b = adapter_of("A", 2), adapter_of("B", 2)
    used(bench, [a, b])
    bench.slots.forget(a.key)
    bench.slots.forget(("B", "2"))
    bench.slots.forget(("none", "1"))
    assert sorted(bench.contents(), key=str) == ["B", None]
    assert bench.slots.state().resident == {b.key}
    with bench.batch([a]):
        assert sorted(bench.contents(), key=str) == ["A", "B"]


def test_a_reserved_adapter_is_not_forgotten() -> None:
    bench = Bench(1)
    with bench.batch([A]):
        bench.slots.forget(A.key)
        assert bench.contents() == ["A"]
        assert bench.held() == "A"
    bench.slots.forget(A.key)
    assert bench.contents() == [None]
    bench.end()


def test_of_two_with_one_key_the_reserved_one_counts() -> None:
    """One was forgotten while it was reserved, and loaded again."""
    again = adapter_of("A")
    for first, second in ((A, again), (again, A)):
        bench = Bench(2)
        used(bench, [A, again])
        with bench.batch([first]):
            assert bench.slots.state().in_use == {A.key}
            bench.slots.forget(A.key)
            assert bench.contents().count("A") == 1
        with bench.batch([second]):
            assert bench.held() == "A"
        bench.end()

"""Device slots over sinks that record what is written, and threads that reserve them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from polling import PATIENCE_S, wait_until

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.adapters.device import DeviceSlots, LoadedAdapter


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

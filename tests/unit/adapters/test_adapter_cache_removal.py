"""Removing adapters from the memory tier, which waits until no one uses them, and closing the tier."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from adapter_shelf import Make, Shelf, in_memory, is_refused, ready, use
from polling import PATIENCE_S, wait_until

from gliner_bento.adapters.device import Key
from gliner_bento.errors import AdapterNotFound, DeadlineExceeded, NotReady


def test_removing_refuses_then_waits_then_deletes(make: Make, shelf: Shelf, thread) -> None:
    cache = make()
    lease, other = cache.acquire("a"), cache.acquire("b")
    ready(lease), ready(other)
    users_at_forget: list[bool] = []
    removing = thread(cache.remove, "a", lambda: users_at_forget.append(released.is_set()), PATIENCE_S)
    released = threading.Event()
    wait_until(lambda: is_refused(cache, "a"))
    assert in_memory(cache) == "ab"
    with pytest.raises(AdapterNotFound, match="'a' is being removed"):
        cache.acquire("a")
    ready(cache.acquire("b"))
    assert shelf.evicted == []
    assert removing.is_alive()
    released.set()
    lease.release()
    removing.join(PATIENCE_S)
    assert users_at_forget == [True]
    assert (in_memory(cache), shelf.evicted, cache.uses("a").count) == ("b", [("a", "1")], 0)
    ready(cache.acquire("a"))  # counted from 0
    assert shelf.loads.count("a") == 2


def test_removing_times_out_and_changes_nothing(make: Make, shelf: Shelf) -> None:
    cache, forgotten = make(), []
    lease = cache.acquire("a")
    ready(lease)
    with pytest.raises(DeadlineExceeded, match="'a' is still in use"):
        cache.remove("a", lambda: forgotten.append("a"), 0.0)
    assert ready(cache.acquire("a")) is ready(lease)
    assert (forgotten, shelf.evicted, cache.uses("a").count) == ([], [], 2)


def test_removing_that_fails_leaves_it_served(make: Make, shelf: Shelf) -> None:
    cache = make()
    use(cache, "a")

    def fails() -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        cache.remove("a", fails, PATIENCE_S)
    use(cache, "a")
    assert (shelf.loads, shelf.evicted, in_memory(cache)) == (["a"], [], "a")


def test_a_second_removal_is_refused(make: Make, shelf: Shelf, thread) -> None:
    cache, forgotten = make(), []
    lease = cache.acquire("a")
    first = thread(cache.remove, "a", lambda: forgotten.append("first"), PATIENCE_S)
    wait_until(lambda: is_refused(cache, "a"))
    with pytest.raises(AdapterNotFound):
        cache.remove("a", lambda: forgotten.append("second"), PATIENCE_S)
    assert is_refused(cache, "a")
    lease.release()
    first.join(PATIENCE_S)
    assert forgotten == ["first"]
    assert not is_refused(cache, "a")


def test_all_versions_are_removed(make: Make, shelf: Shelf, thread) -> None:
    cache = make(capacity=3)
    old = cache.acquire("a")
    ready(old)
    shelf.put("a", "2")
    use(cache, "a", "b")
    removing = thread(cache.remove, "a", lambda: None, PATIENCE_S)
    wait_until(lambda: is_refused(cache, "a"))
    assert removing.is_alive()
    old.release()
    removing.join(PATIENCE_S)
    assert sorted(shelf.evicted) == [("a", "1"), ("a", "2")]
    assert in_memory(cache) == "b"


def test_removing_waits_for_pending_adapters_too(make: Make, shelf: Shelf, thread) -> None:
    cache = make(capacity=1)
    first, waiting = cache.acquire("a"), cache.acquire("b")
    removing = thread(cache.remove, "b", lambda: None, PATIENCE_S)
    wait_until(lambda: is_refused(cache, "b"))
    first.release()
    ready(waiting)
    assert removing.is_alive()
    waiting.release()
    removing.join(PATIENCE_S)
    assert in_memory(cache) == ""


def test_removing_frees_memory(make: Make, shelf: Shelf, thread) -> None:
    """While it is loading after its last release, and while it is pending."""
    cache = make(capacity=1)
    shelf.close("a")
    cache.acquire("a").release()
    waiting = cache.acquire("b")
    cache.remove("a", lambda: None, 0.0)
    ready(waiting)
    shelf.open("a")
    cache.remove("c", lambda: None, 0.0)
    waiting.release()
    use(cache, "a")
    assert shelf.loads == ["a", "b", "a"]
    assert in_memory(cache) == "a"


def test_on_evict_may_call_the_cache(make: Make, shelf: Shelf) -> None:
    """From another thread: the lock is not held."""
    counts: list[int] = []

    def evicted(key: Key) -> None:
        with ThreadPoolExecutor(1) as pool:
            counts.append(pool.submit(lambda: len(cache.loaded_keys())).result(PATIENCE_S))

    cache = make(capacity=1, on_evict=evicted)
    use(cache, "a", "b")
    cache.remove("b", lambda: None, 0.0)
    assert counts[-1] == 0
    assert len(counts) == 2


def test_after_closing_nothing_is_loaded_and_waiting_items_fail(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=2, threads=1)
    use(cache, "a")
    shelf.close("b")
    loading, queued, full = (cache.acquire(adapter_id) for adapter_id in "bcd")
    wait_until(lambda: shelf.loads == ["a", "b"])
    cache.close()
    for lease in (loading, queued, full):
        with pytest.raises(NotReady):
            ready(lease)
    with pytest.raises(NotReady):
        cache.acquire("a")
    shelf.open("b")
    for lease in (loading, queued, full):
        lease.release()
    cache.close()
    wait_until(lambda: not any(thread.name.startswith("adapter") for thread in threading.enumerate()))
    assert shelf.loads == ["a", "b"]

"""The memory tier: adapters are loaded once, stay while they are used, and are bounded."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from adapter_shelf import Make, Shelf, in_memory, is_refused, ready, use
from waiting import PATIENCE_S, wait_until

from gliner_bento.adapters.cache import AdapterCache, Lease
from gliner_bento.adapters.device import Key
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, DeadlineExceeded, NotReady

# Loading


def test_an_adapter_is_loaded_once_for_concurrent_requests(make: Make, shelf: Shelf) -> None:
    cache, together = make(), threading.Barrier(8)
    shelf.close("a")

    def ask(_: int) -> Lease:
        together.wait(PATIENCE_S)
        return cache.acquire("a")

    with ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(ask, range(8)))
    assert not any(lease.ready.done() for lease in leases)
    assert in_memory(cache) == ""
    shelf.open("a")
    assert len({id(ready(lease)) for lease in leases}) == 1
    assert ready(leases[0]).key == leases[0].key == ("a", "1")
    use(cache, "a")
    assert shelf.loads == ["a"]
    assert in_memory(cache) == "a"


def test_a_failed_load_fails_all_waiting_items_and_is_retried_for_the_next(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=1)
    shelf.damaged = {"a"}
    shelf.close("a")
    leases = [cache.acquire("a") for _ in range(3)]
    shelf.open("a")
    for lease in leases:
        with pytest.raises(AdapterInvalid, match="a"):
            ready(lease)
    assert in_memory(cache) == ""
    shelf.damaged = set()
    again = cache.acquire("a")
    assert ready(again).key == ("a", "1")
    for lease in leases:
        lease.release()
    assert in_memory(cache) == "a"
    assert shelf.loads == ["a", "a"]
    assert shelf.evicted == []


def test_a_failed_load_may_be_retried_in_its_callback(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=1)
    shelf.damaged = {"a"}
    shelf.close("a")
    second: list[Lease] = []

    def again(_: object) -> None:
        shelf.damaged = set()
        second.append(cache.acquire("a"))

    first = cache.acquire("a")
    first.ready.add_done_callback(again)
    shelf.open("a")
    wait_until(lambda: bool(second))
    assert ready(second[0]).key == ("a", "1")
    assert isinstance(first.ready.exception(), AdapterInvalid)


def test_a_failed_load_frees_its_place(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=1)
    shelf.damaged = {"a"}
    shelf.close("a")
    first, second = cache.acquire("a"), cache.acquire("b")
    shelf.open("a")
    assert ready(second).key == ("b", "1")
    assert first.ready.exception() is not None


def test_an_invalid_id_is_refused_without_side_effects(make: Make, shelf: Shelf) -> None:
    cache = make()
    shelf.missing = {"a"}
    with pytest.raises(AdapterNotFound):
        cache.acquire("a")
    assert (shelf.loads, cache.uses("a").count) == ([], 0)


def test_a_slow_adapter_does_not_delay_others(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=5, threads=2)
    shelf.close("slow")
    slow = cache.acquire("slow")
    for adapter_id in "abcabc":
        use(cache, adapter_id)
    assert not slow.ready.done()
    shelf.open("slow")
    ready(slow)


def test_start_thread_runs_before_loading(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=4, threads=2)
    use(cache, "a", "b", "c", "d")
    assert 1 <= len(shelf.began) <= 2
    assert threading.get_ident() not in shelf.began


# Eviction


def test_the_least_recently_used_is_evicted(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=2)
    use(cache, "a", "b", "a", "c")
    assert (in_memory(cache), shelf.evicted) == ("ac", [("b", "1")])
    use(cache, "d")
    assert (in_memory(cache), shelf.evicted) == ("cd", [("b", "1"), ("a", "1")])


def test_adapters_in_use_are_not_evicted(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=2)
    lease = cache.acquire("a")
    use(cache, "b", "c", "d")
    assert in_memory(cache) == "ad"
    lease.release()
    use(cache, "e")
    assert in_memory(cache) == "de"


def test_pinned_adapters_are_evicted_last(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=2)
    shelf.put("p", pinned=True)
    shelf.put("q", pinned=True)
    use(cache, "p", "a", "b")
    assert in_memory(cache) == "bp"
    use(cache, "q", "c")
    assert in_memory(cache) == "cq"


def test_if_all_are_in_use_new_ones_wait_in_order(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=2)
    first, second = cache.acquire("a"), cache.acquire("b")
    ready(first), ready(second)
    third, fourth = cache.acquire("c"), cache.acquire("d")
    assert not third.ready.done()
    first.release()
    ready(third)
    assert not fourth.ready.done()
    assert in_memory(cache) == "bc"
    third.release()
    ready(fourth)
    assert shelf.loads[2:] == ["c", "d"]
    assert shelf.evicted == [("a", "1"), ("c", "1")]


def test_a_pending_adapter_keeps_its_place_in_the_queue(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=1)
    first = cache.acquire("a")
    ready(first)
    waiting = [cache.acquire(adapter_id) for adapter_id in "bcb"]
    first.release()
    assert ready(waiting[0]) is ready(waiting[2])
    assert not waiting[1].ready.done()
    waiting[0].release()
    assert not waiting[1].ready.done()
    waiting[2].release()
    ready(waiting[1])


def test_adapters_being_loaded_count_towards_the_capacity(make: Make, shelf: Shelf) -> None:
    """Also if no item waits for it any more."""
    cache = make(capacity=1)
    shelf.close("a")
    cache.acquire("a").release()
    second = cache.acquire("b")
    wait_until(lambda: shelf.loads == ["a"])
    assert not second.ready.done()
    shelf.open("a")
    ready(second)
    assert (in_memory(cache), shelf.evicted) == ("b", [("a", "1")])


def test_a_released_pending_adapter_is_not_loaded(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=1)
    first = cache.acquire("a")
    ready(first)
    given_up, one, other = (cache.acquire(adapter_id) for adapter_id in "bcc")
    given_up.release()
    one.release()  # the other one still waits
    first.release()
    ready(other)
    assert shelf.loads == ["a", "c"]
    assert shelf.evicted == [("a", "1")]


def test_another_version_is_another_adapter(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=3)
    old = cache.acquire("a")
    ready(old)
    shelf.put("a", "2")
    new = cache.acquire("a")
    assert (ready(old).key, ready(new).key) == (("a", "1"), ("a", "2"))
    assert cache.loaded_keys() == {("a", "1"), ("a", "2")}
    assert cache.uses("a").count == 2


def test_pinning_takes_effect_with_the_next_lease(make: Make, shelf: Shelf) -> None:
    cache = make(capacity=2)
    use(cache, "a")
    for pinned in (True, False, True):
        shelf.put("a", pinned=pinned)
        lease = cache.acquire("a")
        assert ready(lease).pinned == pinned
        lease.release()
    use(cache, "b", "c")
    assert in_memory(cache) == "ac"


def test_pinning_takes_effect_while_an_adapter_is_loading(make: Make, shelf: Shelf) -> None:
    cache = make()
    shelf.close("a")
    lease = cache.acquire("a")
    wait_until(lambda: shelf.loads == ["a"])
    shelf.put("a", pinned=True)
    cache.acquire("a")
    shelf.open("a")
    wait_until(lambda: ready(lease).pinned)


def test_uses_are_counted(make: Make) -> None:
    cache = make()
    before_s = time.time()
    assert (cache.uses("a").count, cache.uses("a").last_s) == (0, None)
    cache.acquire("a", count=False).release()
    assert (cache.uses("a").count, cache.uses("a").last_s) == (0, None)
    use(cache, "a", "b", "a")
    uses = cache.uses("a")
    assert uses.count == 2
    assert uses.last_s is not None
    assert before_s <= uses.last_s <= time.time()
    use(cache, "a")
    assert uses.count == 2  # as it was


# Any order


def hold(cache: AdapterCache, name: str, capacity: int, *, waits: bool) -> None:
    lease = cache.acquire(name)
    try:
        if waits:
            assert ready(lease).key[0] == name
            assert lease.key in cache.loaded_keys()
    finally:
        lease.release()
    assert len(cache.loaded_keys()) <= capacity


@pytest.mark.usefixtures("_busy_threads")
def test_leased_adapters_stay_in_memory_and_memory_is_bounded(make: Make, shelf: Shelf, thread) -> None:
    """Threads acquire eight adapters, one of which cannot be loaded, and sometimes remove one."""
    cache = make(capacity=3, threads=3)
    shelf.damaged = {"h"}
    faults: list[object] = []

    def worker(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(200):
            name = draw.choice("abcdefgh")
            try:
                if draw.random() < 0.05:
                    cache.remove(name, lambda: None, 0.01)
                else:
                    hold(cache, name, 3, waits=draw.random() < 0.8)
            except (AdapterNotFound, DeadlineExceeded):
                pass
            except BaseException as error:
                if name != "h" or not isinstance(error, AdapterInvalid):
                    faults.append(error)

    workers = [thread(worker, seed) for seed in range(4)]
    for one in workers:
        one.join(PATIENCE_S)
    assert faults == []
    use(cache, *"abcdefg")
    assert in_memory(cache) == "efg"


# Removing adapters from the memory tier, which waits until no one uses them, and closing the tier


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
    wait_until(lambda: shelf.loads == ["a"])
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

"""Which adapters leave the device: the least recently used, pinned ones last, and those that are forgotten."""

from __future__ import annotations

from slot_bench import A, B, Bench, C, D, adapter_of, used


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

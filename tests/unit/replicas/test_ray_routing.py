"""Which replica of a Ray cluster gets a call. Needs no Ray."""

from __future__ import annotations

from typing import Any

from gliner_bento.replicas.ray.routing import Candidate, Placement, Placements

MAX = 3200
NEAR = MAX // 32


def placements(**options: Any) -> Placements:
    return Placements(MAX, 30.0, **options)


def candidates(*names: str, **options: dict[str, Any]) -> list[Candidate]:
    return [Candidate(name=name, **options.get(name, {})) for name in names]


def place(placed: Placements, key: str, among: list[Candidate], *, tokens: int = 100, adapter_id: Any = None) -> Any:
    order = placed.place(key, Placement("me", tokens, adapter_id), among)
    return order[0] if order else None


def test_a_burst_is_spread_before_any_call_is_answered():
    placed, among = placements(), candidates("a", "b", "c")
    assert sorted(place(placed, str(number), among) for number in range(6)) == ["a", "a", "b", "b", "c", "c"]


def test_the_replica_with_the_fewest_outstanding_tokens_is_next():
    placed, among = placements(), candidates("a", "b")
    first = place(placed, "long", among, tokens=1000)
    other = place(placed, "short", among, tokens=10)
    assert {first, other} == {"a", "b"}
    assert [place(placed, f"next{number}", among, tokens=10) for number in range(5)] == [other] * 5
    placed.end("long")
    assert place(placed, "last", among, tokens=10) == first


def test_tokens_of_other_gateways_count_and_our_own_are_not_counted_twice():
    placed = placements()
    among = candidates("a", "b", a={"outstanding": {"me": 3000, "other": 200}}, b={"outstanding": {"other": 300}})
    assert [place(placed, str(number), among, tokens=101) for number in range(2)] == ["a", "b"]


def test_a_full_replica_gets_nothing_and_all_full_means_wait():
    placed, among = placements(), candidates("a", "b")
    place(placed, "1", among, tokens=MAX)
    assert [place(placed, str(number), among, tokens=1) for number in (2, 3)] == ["b", "b"]
    place(placed, "4", among, tokens=MAX)
    assert place(placed, "5", among) is None
    placed.end("1")
    assert place(placed, "5", among) == "a"


def test_the_replica_with_the_adapter_is_preferred_within_a_bound():
    placed = placements()
    among = candidates("a", "b", b={"adapters": ["tenant"]})
    assert [place(placed, str(number), among, tokens=NEAR, adapter_id="tenant") for number in range(2)] == ["b", "b"]
    assert place(placed, "2", among, tokens=1, adapter_id="tenant") == "a", "b has too much more to do"


def test_an_adapter_counts_as_resident_where_a_call_with_it_runs():
    placed, among = placements(), candidates("a", "b", "c")
    home = place(placed, "1", among, tokens=10, adapter_id="tenant")
    assert place(placed, "2", among, tokens=10, adapter_id="tenant") == home
    placed.end("1")
    placed.end("2")
    assert place(placed, "3", among, tokens=10) != home


def test_a_call_that_ray_sends_elsewhere_counts_there():
    placed, among = placements(), candidates("a", "b")
    first = place(placed, "1", among, tokens=1000)
    other = {"a": "b", "b": "a"}[first]
    placed.move("1", other)
    assert [place(placed, f"next{number}", among, tokens=10) for number in range(3)] == [first] * 3


def test_a_call_that_is_placed_again_counts_once():
    placed, among = placements(), candidates("a", "b")
    for _ in range(3):
        place(placed, "1", among, tokens=1000)
    placed.end("1")
    assert {place(placed, "2", among), place(placed, "3", among)} == {"a", "b"}


def test_a_call_whose_end_was_not_reported_is_forgotten_after_the_longest_time():
    now_s = [0.0]
    placed, among = placements(clock=lambda: now_s[0]), candidates("a")
    place(placed, "1", among, tokens=MAX)
    now_s[0] = 39.0
    assert place(placed, "2", among) is None
    now_s[0] = 41.0
    assert place(placed, "2", among) == "a"


def test_a_replica_with_another_model_than_most_gets_nothing():
    model = {"model": "x"}
    among = candidates("a", "b", "c", "new", a={"model": "y"}, b=model, c=model)
    placed = placements()
    chosen = {place(placed, str(number), among) for number in range(8)}
    assert chosen == {"b", "c", "new"}, "one that has not reported yet may serve the usual model"


def test_replicas_that_are_gone_leave_nothing_behind():
    placed = placements()
    for number in range(100):
        place(placed, str(number), candidates(f"a{number}", f"b{number}"))
        placed.end(str(number))
    assert len(placed._loads) <= 6

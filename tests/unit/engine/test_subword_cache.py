"""The cache of sub-words: bounded, and right for every thread. The encoding here is the word's characters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from gliner_bento.engine.text.subword_cache import MAX_CACHED_CHARS, CachedSubwords


def encode(words: Sequence[str]) -> list[bytes]:
    return [word.encode("utf-32-le") for word in words]


class Counted:
    """`encode`, with the words of each call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, words: Sequence[str]) -> list[bytes]:
        self.calls.append(list(words))
        return encode(words)


def test_only_missing_words_are_encoded_once_and_in_one_call() -> None:
    counted = Counted()
    cached = CachedSubwords(counted)
    assert cached(["a", "b", "a", "c"]) == encode(["a", "b", "a", "c"])
    assert cached(["c", "", "d", "a", "d"]) == encode(["c", "", "d", "a", "d"])
    assert cached(["", "d"]) == encode(["", "d"])
    assert counted.calls == [["a", "b", "c"], ["", "d"]]


def test_the_number_and_the_length_of_words_are_bounded() -> None:
    cached, draw = CachedSubwords(encode, max_words=50), random.Random(0)
    for _ in range(300):
        words = [str(draw.randrange(10**6)) for _ in range(draw.randint(1, 120))]
        assert cached(words) == encode(words)
        assert len(cached) <= 50
    counted = Counted()
    cached = CachedSubwords(counted)
    longest = "x" * MAX_CACHED_CHARS
    for _ in range(2):
        assert cached([longest, longest + "x"]) == encode([longest, longest + "x"])
    assert counted.calls == [[longest, longest + "x"], [longest + "x"]]
    assert len(cached) == 1


def test_words_in_use_stay_while_others_pass_through() -> None:
    counted = Counted()
    cached = CachedSubwords(counted, max_words=40)
    common = ["the", "of", "and"]
    cached(common)
    for number in range(500):
        cached([*common, f"rare {number}"])
    assert [word for words in counted.calls for word in words if word in common] == common


def test_a_word_that_cannot_be_encoded_is_refused_each_time() -> None:
    def refusing(words: Sequence[str]) -> list[bytes]:
        if "marker" in words:
            raise ValueError("a marker")
        return encode(words)

    cached = CachedSubwords(refusing)
    for _ in range(2):
        with pytest.raises(ValueError, match="a marker"):
            cached(["a", "marker"])
    assert cached(["a"]) == encode(["a"])


@pytest.mark.usefixtures("restless")
def test_several_threads_get_the_right_words() -> None:
    cached = CachedSubwords(encode, max_words=30)

    def use(seed: int) -> bool:
        draw = random.Random(seed)
        texts = [[str(draw.randrange(60)) for _ in range(20)] for _ in range(200)]
        return all(cached(words) == encode(words) and len(cached) <= 30 for words in texts)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(8)))

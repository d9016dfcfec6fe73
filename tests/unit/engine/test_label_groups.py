from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.engine.base import run_all
from gliner_bento.engine.text.label_groups import grouped
from gliner_bento.engine.text.passes import PassLimits, PassPlanner
from gliner_bento.tasks.extraction import ExtractionItem

TOKENS = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 20), min_size=1, max_size=60)


@given(TOKENS, st.integers(1, 30), st.integers(20, 100), st.randoms(use_true_random=True))
def test_groups_hold_every_name_once_and_no_more_than_they_may(
    tokens: dict[str, int], max_labels: int, max_tokens: int, rng: random.Random
) -> None:
    groups = grouped(tokens, max_labels=max_labels, max_tokens=max_tokens)
    assert sorted(name for group in groups for name in group) == sorted(tokens)
    assert all(1 <= len(group) <= max_labels for group in groups)
    assert all(sum(tokens[name] for name in group) <= max_tokens for group in groups)
    shuffled = rng.sample(sorted(tokens), len(tokens))
    assert grouped({name: tokens[name] for name in shuffled}, max_labels=max_labels, max_tokens=max_tokens) == groups


def test_no_more_groups_than_names_and_tokens_need() -> None:
    tokens = {str(number): 2 for number in range(100)}
    assert len(grouped(tokens, max_labels=25, max_tokens=1000)) == 4
    assert len(grouped(tokens, max_labels=1000, max_tokens=50)) == 4


def test_groups_are_of_near_equal_length() -> None:
    rng = random.Random(5)
    tokens = {str(number): rng.randint(2, 12) for number in range(1000)}
    lengths = [sum(tokens[name] for name in group) for group in grouped(tokens, max_labels=25, max_tokens=400)]
    assert len(lengths) == 40
    assert max(lengths) - min(lengths) <= 12


def test_relations_without_labels_are_grouped() -> None:
    prompts = SimpleNamespace(
        inline=True, schema=True, tokens_of=lambda *_: 20, prompt=lambda _: SimpleNamespace(room=60)
    )
    tokenizer: Any = SimpleNamespace(prompts=prompts, limits=SimpleNamespace(tokens=128))
    planner = PassPlanner(tokenizer, PassLimits(100, 100, 10, None, None))
    item = ExtractionItem("text", {}, {"a": "a", "b": "b"}, threshold=0.5, relation_threshold=0.5)
    groups = run_all(planner.groups(item, divided=False))
    assert (groups.labels, groups.relations) == ([()], [("a",), ("b",)])

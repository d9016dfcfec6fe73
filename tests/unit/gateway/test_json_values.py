"""Values of a body are counted as a parser counts them, however the body is cut into chunks."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.gateway.json_values import MAX_VALUES, JsonValues
from gliner_bento.settings import Settings

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a",[{\\]}é\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a",[{\\'), inner),
    max_leaves=30,
)


def counted(value: Any) -> int:
    """Lists and objects, and their items but the first."""
    if not isinstance(value, list | dict):
        return 0
    items = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(0, len(items) - 1) + sum(map(counted, items))


@given(ANY_JSON, st.integers(1, 9), st.booleans())
def test_the_count_is_that_of_the_parsed_values(value, size, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    values, count = JsonValues(), 0
    for start in range(0, len(body), size):
        count = values.add(body[start : start + size])
    assert count == counted(json.loads(body))


def test_texts_count_for_nothing():
    text = "".join(random.Random(1).choices('[]{},"\\ ab', k=100_000))
    assert JsonValues().add(json.dumps({"text": text}).encode()) == 1


def test_the_largest_batch_of_the_default_limits_fits():
    settings = Settings()
    item = {"text": "Ada", "labels": ["x"] * settings.max_labels}
    assert JsonValues().add(json.dumps({"items": [item] * settings.max_batch_items}).encode()) < MAX_VALUES

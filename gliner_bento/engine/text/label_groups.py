"""Divides labels that do not fit one pass into groups with nearly equal numbers of tokens. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from math import ceil


def grouped(tokens: Mapping[str, int], *, max_labels: int, max_tokens: int) -> list[tuple[str, ...]]:
    """Names in few groups of at most `max_labels` names and `max_tokens` tokens, nearly equal in tokens.

    tokens: the number of tokens of each name, at most `max_tokens`. The order of the names does not matter.
    Raises ValueError for a name that fits no group.
    """
    if max_labels < 1 or any(of_name > max_tokens for of_name in tokens.values()):
        raise ValueError("a name fits no group")
    longest_first = sorted(tokens, key=lambda name: (-tokens[name], name))
    over_half = sum(2 * of_name > max_tokens for of_name in tokens.values())  # no two of these share a group
    count = max(ceil(len(tokens) / max_labels), ceil(sum(tokens.values()) / max_tokens), over_half)
    while True:
        groups = _distributed(longest_first, tokens, count, max_labels)
        if all(sum(tokens[name] for name in group) <= max_tokens for group in groups):
            return [tuple(sorted(group)) for group in groups]
        count += 1


def _distributed(longest_first: list[str], tokens: Mapping[str, int], count: int, max_labels: int) -> list[list[str]]:
    """`count` groups. Each name goes to the group with the fewest tokens among those that are not full."""
    groups: list[list[str]] = [[] for _ in range(count)]
    not_full = [(0, number) for number in range(count)]  # a heap of (tokens, index) of groups
    for name in longest_first:
        group_tokens, number = heapq.heappop(not_full)
        groups[number].append(name)
        if len(groups[number]) < max_labels:
            heapq.heappush(not_full, (group_tokens + tokens[name], number))
    return groups

"""Estimates how many tokens an item costs, from the number of its characters: for admission and for dispatch."""

from __future__ import annotations

from gliner_bento.fairness.constants import REMEMBERED_CHARACTERS, TOKENS_PER_CHARACTER
from gliner_bento.tasks.base import Item


class TokenEstimate:
    """Learns the tokens per character from results. Costs are tokens of all passes, prompts included."""

    def __init__(self) -> None:
        self._characters = 1000.0  # the weight of the first estimate
        self._tokens = TOKENS_PER_CHARACTER * self._characters

    def estimate(self, item: Item) -> float:
        """The cost of the item, in tokens."""
        return (1 + item.chars) * self._tokens / self._characters

    def learn(self, item: Item, tokens: int) -> None:
        """Note the measured cost of an item."""
        characters = 1 + item.chars
        kept = 0.5 ** (characters / REMEMBERED_CHARACTERS)
        self._tokens = self._tokens * kept + tokens
        self._characters = self._characters * kept + characters

"""Which replica gets a call: the one with the fewest outstanding tokens, or one that has the call's adapter in memory.

The fleet's rule, for replicas that come and go. No Ray, no IO.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gliner_bento.replicas.fleet.dispatch import AFFINITY_SHARE

_EXPIRY_MARGIN_S = 10.0
_CHOICES = 3
"""So many replicas are returned: the others are for the case that the first accepts no more calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica, as its latest routing stats describe it. name: of the replica.

    model: what it serves. adapters: those in its memory. outstanding: tokens that it has not answered, by gateway.
    """

    name: Hashable
    model: str | None = None
    adapters: Collection[str] = ()
    outstanding: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """What a call is placed by. gateway: its sender. tokens: its estimated cost."""

    gateway: str
    tokens: int
    adapter_id: str | None = None


@dataclass(slots=True)
class _Load:
    """What this process has placed on a replica. last: turn of its latest call; of equal loads, the earliest wins."""

    tokens: int = 0
    last: int = 0
    adapters: Counter[str] = field(default_factory=Counter)


class Placements:
    """The calls of this process that have been placed and have not ended.

    max_outstanding_tokens: a replica with so many gets no more. max_age_s: no call lasts longer; one whose end was not
    reported counts no more after that.
    """

    def __init__(
        self, max_outstanding_tokens: int, max_age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max = max_outstanding_tokens
        self._max_age_s = max_age_s + _EXPIRY_MARGIN_S
        self._clock = clock
        self._turns = 0
        self._loads: dict[Hashable, _Load] = {}
        self._placed: dict[str, tuple[Hashable, Placement]] = {}
        self._expiry: deque[tuple[float, str]] = deque()

    def place(self, key: str, placement: Placement, candidates: Sequence[Candidate]) -> list[Hashable]:
        """The replicas for a call, best first; it counts on the first from now on. Empty if all are full."""
        self.end(key)
        self._forget(candidates)
        usual = _of_the_usual_model(candidates)
        tokens = {one.name: self._tokens(one, placement.gateway) for one in usual}
        free = [one for one in usual if tokens[one.name] < self._max]
        free.sort(key=lambda one: (tokens[one.name], self._load(one.name).last))
        if not free:
            return []
        limit = tokens[free[0].name] + self._max // AFFINITY_SHARE
        if placement.adapter_id is not None:
            homes = (one for one in free if tokens[one.name] <= limit and self._is_home(one, placement.adapter_id))
            if home := next(homes, None):
                free.remove(home)
                free.insert(0, home)
        self._count(key, placement, free[0].name)
        return [one.name for one in free[:_CHOICES]]

    def move(self, key: str, name: Hashable) -> None:
        """The call went to another replica than the first choice."""
        if (placed := self._placed.get(key)) and placed[0] != name:
            self.end(key)
            self._count(key, placed[1], name)

    def end(self, key: str) -> None:
        """The call has ended, or has not been sent. Idempotent."""
        if placed := self._placed.pop(key, None):
            name, placement = placed
            load = self._load(name)
            load.tokens -= placement.tokens
            if placement.adapter_id is not None:
                load.adapters[placement.adapter_id] -= 1

    def _count(self, key: str, placement: Placement, name: Hashable) -> None:
        self._turns += 1
        load = self._load(name)
        load.tokens += placement.tokens
        load.last = self._turns
        if placement.adapter_id is not None:
            load.adapters[placement.adapter_id] += 1
        self._placed[key] = name, placement
        self._expiry.append((self._clock() + self._max_age_s, key))

    def _load(self, name: Hashable) -> _Load:
        return self._loads.setdefault(name, _Load())

    def _tokens(self, one: Candidate, gateway: str) -> int:
        """Outstanding tokens: of this gateway as counted here, of the others as the replica reports them."""
        others = sum(tokens for sender, tokens in one.outstanding.items() if sender != gateway)
        return self._load(one.name).tokens + others

    def _is_home(self, one: Candidate, adapter_id: str) -> bool:
        return adapter_id in one.adapters or self._load(one.name).adapters[adapter_id] > 0

    def _forget(self, candidates: Sequence[Candidate]) -> None:
        """Drop calls that are over without a report, and replicas that are gone."""
        now_s = self._clock()
        while self._expiry and self._expiry[0][0] <= now_s:
            self.end(self._expiry.popleft()[1])
        if len(self._loads) > 2 * len(candidates):
            names = {one.name for one in candidates} | {name for name, _ in self._placed.values()}
            self._loads = {name: load for name, load in self._loads.items() if name in names}


def _of_the_usual_model(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that serve the model that most do; one that has not reported yet may be any."""
    models = Counter(one.model for one in candidates if one.model is not None)
    if len(models) < 2:
        return list(candidates)
    ((usual, _),) = models.most_common(1)
    return [one for one in candidates if one.model in (None, usual)]

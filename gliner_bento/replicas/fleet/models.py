"""The models of several runners: each holds the same, and a model serves if one runner has it ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from gliner_bento.errors import Conflict, GLiNERBentoError, NotReady
from gliner_bento.model_types import AddModelRequest, ModelAction, ModelRow
from gliner_bento.replicas.base import Archive, Models, Replica
from gliner_bento.replicas.fleet.health import NONE_READY

T = TypeVar("T")

_BEST_FIRST = ("ready", "evicted", "loading", "unloading", "unloaded", "failed")


class FleetModels:
    """The `Models` of a fleet. members: the models of each runner, by its name. fleets: the replica of each model;
    changes with the models. make: makes the replica of a model that is added. end: closes the replica of one that is
    removed."""

    def __init__(
        self,
        members: Mapping[str, Models],
        fleets: dict[str | None, Replica],
        make: Callable[[str], Replica],
        end: Callable[[Replica], Awaitable[None]],
    ) -> None:
        self._members = members
        self._fleets = fleets
        self._make, self._end = make, end

    async def rows(self) -> Sequence[ModelRow]:
        """See `Models`; of each model, the row of the runner where its state is best."""
        best: dict[str | None, ModelRow] = {}
        for rows in await self._on_all(lambda member: member.rows()):
            for row in rows:
                known = best.setdefault(row.name, row)
                best[row.name] = min(known, row, key=lambda one: _BEST_FIRST.index(one.state))
        return list(best.values())

    async def add(self, request: AddModelRequest, timeout_s: float, archive: Archive | None = None) -> ModelRow:
        """See `Models`. If one runner cannot load the model, the others remove it again. A runner that does not answer
        loads it once it is back. One runner unpacks an archive for all."""
        members, outcomes = [*self._members.values()], list[ModelRow | BaseException]()
        if archive is not None:
            first = await self._reachable()
            members.sort(key=lambda member: member is not first)
            outcomes.append(unpacked := await first.add(request, timeout_s, archive))
        calls = (member.add(request, timeout_s) for member in members[len(outcomes) :])
        outcomes += await asyncio.gather(*calls, return_exceptions=True)
        if archive is not None:  # a runner that has read the journal has the model already
            outcomes = [unpacked if isinstance(one, Conflict) else one for one in outcomes]
        try:
            return _results(outcomes)[0]
        except GLiNERBentoError:
            added = (member for member, one in zip(members, outcomes, strict=True) if isinstance(one, ModelRow))
            await asyncio.gather(*(member.remove(request.name, timeout_s) for member in added), return_exceptions=True)
            raise

    async def _reachable(self) -> Models:
        """The first runner that answers."""
        for member in self._members.values():
            with suppress(NotReady):
                await member.rows()
                return member
        raise NotReady(NONE_READY)

    async def change(self, name: str, action: ModelAction, timeout_s: float) -> ModelRow:
        """See `Models`."""
        return (await self._on_all(lambda member: member.change(name, action, timeout_s)))[0]

    async def remove(self, name: str, timeout_s: float) -> None:
        """See `Models`."""
        await self._on_all(lambda member: member.remove(name, timeout_s))
        if fleet := self._fleets.pop(name, None):
            await self._end(fleet)

    def replica(self, name: str) -> Replica:
        """See `Models`."""
        if name not in self._fleets:
            self._fleets[name] = self._make(name)
        return self._fleets[name]

    async def _on_all(self, call: Callable[[Models], Awaitable[T]]) -> list[T]:
        """The results of a call of all runners; see `_results`."""
        calls = (call(member) for member in self._members.values())
        return _results(await asyncio.gather(*calls, return_exceptions=True))


def _results(outcomes: Sequence[T | BaseException]) -> list[T]:
    """The results of the runners that answer. Raises an error of one of them, or `NotReady` if none answers."""
    failures = [one for one in outcomes if isinstance(one, BaseException)]
    if other := next((one for one in failures if not isinstance(one, NotReady)), None):
        raise other
    results = [one for one in outcomes if not isinstance(one, BaseException)]
    if not results:
        raise next(iter(failures), NotReady(NONE_READY))
    return results

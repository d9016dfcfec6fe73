"""The models of several runners, which all host the same models. A model serves if it is ready in any runner."""

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
    """The `Models` of several runners. members: the models of each runner, by the runner's name. fleets: the replica of
    each model, by the model's name; added and removed here. make: makes the replica of an added model, from its name.
    end: closes the replica of a removed model."""

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
        """See `Models`. Returns each model's row from the runner where its state is best."""
        best: dict[str | None, ModelRow] = {}
        for rows in await self._on_all(lambda member: member.rows()):
            for row in rows:
                known = best.setdefault(row.name, row)
                best[row.name] = min(known, row, key=lambda candidate: _BEST_FIRST.index(candidate.state))
        return list(best.values())

    async def add(self, request: AddModelRequest, timeout_s: float, archive: Archive | None = None) -> ModelRow:
        """See `Models`. If one runner cannot load the model, the others remove it again. A runner that does not answer
        loads it once it is back. One runner unpacks an archive for all."""
        members, outcomes = [*self._members.values()], list[ModelRow | BaseException]()
        if archive is not None:
            first = await self._reachable()
            members = [first, *(member for member in members if member is not first)]
            first_row = await first.add(request, timeout_s, archive)
            outcomes.append(first_row)
        not_called = members[len(outcomes) :]
        calls = (member.add(request, timeout_s) for member in not_called)
        outcomes += await asyncio.gather(*calls, return_exceptions=True)
        if archive is not None:  # Conflict: the runner has added the model already, from the journal
            outcomes = [first_row if isinstance(outcome, Conflict) else outcome for outcome in outcomes]
        try:
            return _results(outcomes)[0]
        except GLiNERBentoError:
            results = zip(members, outcomes, strict=True)
            added = (member for member, outcome in results if isinstance(outcome, ModelRow))
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
        """Call all runners; returns their results, see `_results`."""
        calls = (call(member) for member in self._members.values())
        return _results(await asyncio.gather(*calls, return_exceptions=True))


def _results(outcomes: Sequence[T | BaseException]) -> list[T]:
    """The results of the runners that answer. Raises an error of one of them, or `NotReady` if none answers."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if error := next((failure for failure in failures if not isinstance(failure, NotReady)), None):
        raise error
    results = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    if not results:
        raise failures[0] if failures else NotReady(NONE_READY)
    return results

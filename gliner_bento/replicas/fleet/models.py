"""The models of several runners, which all host the same models. A model serves if it is ready in any runner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from gliner_bento.commands import AddModel, ModelCommand, RemoveModel
from gliner_bento.errors import Conflict, GLiNERBentoError, ModelNotFound, NotReady
from gliner_bento.model_types import ModelRow
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
        self._ending = set[asyncio.Future[None]]()

    async def rows(self) -> Sequence[ModelRow]:
        """See `Models`. Returns each model's row from the runner where its state is best."""
        best: dict[str | None, ModelRow] = {}
        answers = await asyncio.gather(*(member.rows() for member in self._members.values()), return_exceptions=True)
        for rows in _results(answers):
            for row in rows:
                known = best.setdefault(row.name, row)
                best[row.name] = min(known, row, key=lambda candidate: _BEST_FIRST.index(candidate.state))
        return list(best.values())

    async def apply(self, command: ModelCommand[T], archive: Archive | None = None) -> T:
        """See `Models`. All runners carry a command out. One runner unpacks an archive for all. A runner that does not
        answer adopts the change once it is back. If one cannot load an added model, the others remove it again."""
        members, outcomes = [*self._members.values()], list[Any]()
        if archive is not None:
            first = await self._reachable()
            members = [first, *(member for member in members if member is not first)]
            outcomes.append(await first.apply(command, archive))
        calls = [member.apply(command) for member in members[len(outcomes) :]]
        outcomes += await asyncio.gather(*calls, return_exceptions=True)
        if archive is not None:  # Conflict: the runner has added the model already, from the journal
            outcomes = [outcomes[0] if isinstance(outcome, Conflict) else outcome for outcome in outcomes]
        if isinstance(command, RemoveModel) and None in outcomes:  # others may not have added it yet, if it is loading
            outcomes = [None if isinstance(outcome, ModelNotFound) else outcome for outcome in outcomes]
        try:
            result: T = _results(outcomes)[0]
        except GLiNERBentoError:
            if isinstance(command, AddModel):
                undo = RemoveModel(command.request.name, command.timeout_s)
                results = zip(members, outcomes, strict=True)
                added = [member for member, outcome in results if not isinstance(outcome, BaseException)]
                await asyncio.gather(*(member.apply(undo) for member in added), return_exceptions=True)
            raise
        return result

    async def _reachable(self) -> Models:
        """The first runner that answers."""
        for member in self._members.values():
            with suppress(NotReady):
                await member.rows()
                return member
        raise NotReady(NONE_READY)

    def replica(self, name: str) -> Replica:
        if name not in self._fleets:
            self._fleets[name] = self._make(name)
        return self._fleets[name]

    def forget(self, name: str) -> None:
        if fleet := self._fleets.pop(name, None):
            ending = asyncio.ensure_future(self._end(fleet))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


def _results(outcomes: Sequence[T | BaseException]) -> list[T]:
    """The results of the runners that answer. Raises an error of one of them, or `NotReady` if none answers."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if error := next((failure for failure in failures if not isinstance(failure, NotReady)), None):
        raise error
    results = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    if not results:
        raise failures[0] if failures else NotReady(NONE_READY)
    return results

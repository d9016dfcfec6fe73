"""Ray Serve's request router of the replicas: `routing.py` over Ray's types. Ray pickles this module by value."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from gliner_bento.replicas.ray.routing import Candidate, Placement, Placements


class TokenRouter(RequestRouter):
    """Sends a call to the replica with the fewest outstanding tokens. Calls have a keyword argument `placement`."""

    def initialize_state(self, max_outstanding_tokens: int, max_age_s: float) -> None:
        """Called by Ray with the `request_router_kwargs`."""
        self._placements = Placements(max_outstanding_tokens, max_age_s)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of one replica each, best first; Ray asks again after a pause while there is none."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # else Ray would ask again without a pause
        placement: Placement = pending_request.kwargs["placement"]
        key = pending_request.metadata.internal_request_id
        replicas = {one.replica_id: one for one in candidate_replicas}
        candidates = [Candidate(name=name, **one.routing_stats) for name, one in replicas.items()]
        names = self._placements.place(key, placement, candidates)
        if names:
            pending_request.future.add_done_callback(
                lambda chosen: self._placements.end(key) if chosen.cancelled() else None
            )
        return [[replicas[name]] for name in names]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """A replica has accepted the call."""
        self._placements.move(pending_request.metadata.internal_request_id, replica_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """The call has ended, with a result or an error."""
        self._placements.end(internal_request_id)

"""Ray Serve's request router: a call goes to the replica that it names. Ray pickles this module by value."""

from __future__ import annotations

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from gliner_bento.errors import NotReady
from gliner_bento.replicas.ray import running


class NamedReplicaRouter(RequestRouter):
    """Routes a call to the replica that its keyword argument `replica` names. Reports which replicas run."""

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Called by Ray when replicas are started or stopped, or shortly before."""
        super().update_replicas(replicas)
        running.report(self._deployment_id, [replica.replica_id.unique_id for replica in replicas])

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The named replica; while it is full, Ray asks again after a pause. Fails the call if the replica is gone."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # else Ray would ask again without a pause
        named = self.curr_replicas.get(ReplicaID(pending_request.kwargs["replica"], self._deployment_id))
        if named:
            return [[named]]
        if not pending_request.future.done():
            pending_request.future.set_exception(NotReady("the replica is gone; send the request again"))
            self._remove_pending_request_from_indices(pending_request)
        return [candidate_replicas]  # Ray notices the failed call when it has a candidate

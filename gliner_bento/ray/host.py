"""One replica in an actor of Ray Serve: the deployment of the model. Its callers are `RayReplica`s.

Messages and errors are those of the other transport (`messages.py`); Ray carries them as bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, cast

import ray
from ray import serve

from gliner_bento.errors import GLiNERBentoError
from gliner_bento.process.run import load_model, run
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.replicas.messages import (
    ExtractMessage,
    Outcomes,
    Reply,
    StreamMessage,
    StreamPart,
    calls_of,
    decoder,
    encode,
    reply_to,
    stream_part,
)
from gliner_bento.replicas.ray.routing import Placement
from gliner_bento.replicas.ray.scaling import BUSY_LANES, WAITING_TOKENS
from gliner_bento.settings import Settings
from gliner_bento.telemetry.metrics import own_exposition

_extract_message = decoder(ExtractMessage)
_stream_message = decoder(StreamMessage)


class HostedReplica:
    """A `LocalReplica` with the cores and GPUs that Ray has assigned to its actor."""

    def __init__(self, settings: Settings) -> None:
        self._name: str = serve.get_replica_context().replica_id.unique_id
        self._outstanding: Counter[str] = Counter()
        assigned = ray.get_runtime_context().get_assigned_resources()
        share = min(1.0, assigned.get("GPU", 1.0))
        own = {"num_instances": 1, "target_memory_fraction": settings.target_memory_fraction * share}
        load = partial(load_model, cores=max(1, int(assigned.get("CPU", 1))))
        running = run(settings.model_copy(update=own), load, service=f"replica {self._name}", raises=True)
        self._replica = cast(LocalReplica, running.source.replica)
        self._calls = calls_of(self._replica) | {"refresh_adapter": self._replica.adapters.install}
        model = {name: value for name, value in asdict(self._replica.model).items() if name != "device"}
        self._model = hashlib.sha256(repr(model).encode()).hexdigest()

    async def extract(self, message: bytes, *, placement: Placement) -> tuple[str, bytes]:
        """`ExtractMessage` -> the replica's name, `Outcomes`. Cancelling the call aborts its items."""
        with self._counted(placement):
            sent: ExtractMessage = _extract_message.decode(message)
            replies = [Reply.of(outcome) for outcome in await self._replica.extract(sent.items, sent.call.call())]
            return self._name, encode(Outcomes(replies, self._replica.tokens_run))

    async def stream(self, message: bytes, *, placement: Placement) -> AsyncGenerator[tuple[str, bytes], None]:
        """`StreamMessage` -> the replica's name and a `StreamPart`, several times."""
        sent: StreamMessage = _stream_message.decode(message)
        with self._counted(placement):
            try:
                async with aclosing(self._replica.stream(sent.item, sent.call.call())) as parts:
                    async for part in parts:
                        yield self._name, encode(stream_part(part, self._replica.tokens_run))
            except GLiNERBentoError as error:
                yield self._name, encode(StreamPart(last=Reply.of(error), tokens_run=self._replica.tokens_run))

    async def call(self, method: str, arguments: Mapping[str, Any]) -> tuple[str, bytes]:
        """Call a method of `calls_of`; its `Reply`."""
        return self._name, encode(await reply_to(self._calls[method](**arguments)))

    async def install_adapter(
        self, arguments: Mapping[str, Any], archive: bytes | None, *, placement: Placement
    ) -> tuple[str, bytes]:
        """`ReplicaAdapters.install`; its `Reply`."""
        pieces = None if archive is None else _pieces(archive)
        return self._name, encode(await reply_to(self._replica.adapters.install(**arguments, archive=pieces)))

    async def metrics(self) -> tuple[str, bytes]:
        """This process's metrics in Prometheus' text format."""
        return self._name, own_exposition()

    def record_routing_stats(self) -> dict[str, Any]:
        """For `TokenRouter`: the fields of a `Candidate`. Called by Ray."""
        outstanding = {gateway: tokens for gateway, tokens in self._outstanding.items() if tokens}
        return {
            "model": self._model,
            "adapters": list(self._replica.adapters.resident),
            "outstanding": outstanding,
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        """For `WaitingTokensPolicy`. Called by Ray."""
        stats = self._replica.scheduler.stats
        busy = (stats.lanes_alive - stats.lanes_free) / max(1, stats.lanes)
        return {WAITING_TOKENS: stats.waiting_tokens, BUSY_LANES: busy}

    def check_health(self) -> None:
        """Raises if a thread has died; Ray then replaces the actor. Called by Ray."""
        if not self._replica.ready:
            raise RuntimeError("the replica admits no requests: a thread of it has died")

    def __del__(self) -> None:
        """Called by Ray when all requests have been answered."""
        if replica := getattr(self, "_replica", None):
            replica.close()

    @contextmanager
    def _counted(self, placement: Placement) -> Iterator[None]:
        """The call's tokens are outstanding in this context."""
        self._outstanding[placement.gateway] += placement.tokens
        try:
            yield
        finally:
            self._outstanding[placement.gateway] -= placement.tokens


async def _pieces(archive: bytes) -> AsyncIterator[bytes]:
    yield archive

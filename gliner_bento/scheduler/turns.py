"""Models that share a device take turns. Each batch is a turn; it costs its model the seconds that it takes. Beside the
lanes' turns there is one more, for the batches of short requests that models run in their express lanes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gliner_bento.fairness.constants import EXPRESS_LEAD_S
from gliner_bento.fairness.queue import FairQueue, Order, TenantShare


@dataclass(slots=True, eq=False)
class _Ticket:
    """A lane that waits for its turn. cost: 0, because the turn is charged when it has ended."""

    share: TenantShare
    order: Order
    cost: float = 0.0
    granted: bool = False


class DeviceTurns:
    """At most `lanes` batches run on a device at a time; models with waiting work get equal shares of its time, in
    seconds. A model that was idle is next after one batch. Thread-safe."""

    def __init__(self, lanes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._free = lanes
        self._waiting: FairQueue[_Ticket] = FairQueue()
        self._tickets = 0
        self._models: list[ModelTurns] = []
        self._express: tuple[ModelTurns, float] | None = None  # whose express lane runs a batch, and since when

    def join(self, name: str) -> ModelTurns:
        """The turns of one more model. name: unique among those that have not left."""
        with self._changed:
            self._models.append(ModelTurns(self, TenantShare(name)))
            return self._models[-1]

    def leave(self, model: ModelTurns) -> None:
        """A model ends: its lanes no longer wait for turns. A model may leave twice."""
        with self._changed:
            if model in self._models:
                self._models.remove(model)
            self._changed.notify_all()

    def alone(self, model: ModelTurns) -> bool:
        """Whether no other model runs a batch or waits for its turn."""
        with self._changed:
            others = self._waiting.others_wait(model.share.tenant)
            express = self._express is not None and self._express[0] is not model
            running = any(other.held_since_s for other in self._models if other is not model)
            return not others and not express and not running

    @property
    def full(self) -> bool:
        """Whether a lane would wait for its turn now."""
        with self._changed:
            return not self._free

    def acquire(self, model: ModelTurns, lane: int) -> None:
        """End the lane's last turn, and wait for its next one; returns without a turn if the model has left."""
        with self._changed:
            self._end(model, lane)
            self._tickets += 1
            ticket = _Ticket(model.share, (0, 0.0, self._tickets))
            self._waiting.add(ticket)
            self._grant()
            while not ticket.granted and model in self._models:
                self._changed.wait()
            if ticket.granted:
                model.held_since_s[lane] = self._clock()
            else:
                self._waiting.remove(ticket)

    def release(self, model: ModelTurns, lane: int) -> None:
        """End the lane's turn, if it has one."""
        with self._changed:
            self._end(model, lane)
            self._grant()

    def begin_express(self, model: ModelTurns) -> None:
        """Wait for the turn of the model's express lane: until that of another model has ended, and this model is not
        ahead of one that waits. Returns without a turn if the model has left."""
        with self._changed:
            self._changed.wait_for(lambda: model not in self._models or self._admits_express(model))
            if model in self._models:
                self._express = model, self._clock()

    def end_express(self, model: ModelTurns) -> None:
        """End the turn of the model's express lane, if it has one."""
        with self._changed:
            if self._express and self._express[0] is model:
                self._waiting.charge(model.share.tenant, self._clock() - self._express[1])
                self._express = None
                self._changed.notify_all()

    def _admits_express(self, model: ModelTurns) -> bool:
        return self._express is None and self._waiting.lead(model.share.tenant) <= EXPRESS_LEAD_S

    def _end(self, model: ModelTurns, lane: int) -> None:
        if (since_s := model.held_since_s.pop(lane, None)) is not None:
            self._free += 1
            self._waiting.charge(model.share.tenant, self._clock() - since_s)
            self._changed.notify_all()  # the model may be behind an express lane's now

    def _grant(self) -> None:
        granted = False
        while self._free and self._waiting:
            self._waiting.serve().granted = True
            self._free -= 1
            granted = True
        if granted:
            self._changed.notify_all()


class ModelTurns:
    """The turns of one model on a device. held_since_s: by lane, the start of its turn in seconds of the clock."""

    def __init__(self, device: DeviceTurns, share: TenantShare) -> None:
        self._device = device
        self.share = share
        self.held_since_s: dict[int, float] = {}

    @property
    def alone(self) -> bool:
        """See `DeviceTurns`."""
        return self._device.alone(self)

    @property
    def full(self) -> bool:
        """See `DeviceTurns`."""
        return self._device.full

    def begin_express(self) -> None:
        """See `DeviceTurns`."""
        self._device.begin_express(self)

    def end_express(self) -> None:
        """See `DeviceTurns`."""
        self._device.end_express(self)

    def acquire(self, lane: int) -> None:
        """See `DeviceTurns`."""
        self._device.acquire(self, lane)

    def release(self, lane: int) -> None:
        """See `DeviceTurns`."""
        self._device.release(self, lane)

    def leave(self) -> None:
        """See `DeviceTurns`."""
        self._device.leave(self)

"""Chooses the models that are evicted so that another one can be loaded. Pure: nothing is evicted here."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from gliner_bento.errors import DoesNotFit


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a model. Loaded models whose keys are equal share them, so they count once."""

    key: Hashable
    bytes: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. last_used_s: when a call last began or ended. evictable: whether another model may have its
    memory now."""

    weights: Weights
    last_used_s: float
    evictable: bool


@dataclass(frozen=True, slots=True)
class Room:
    """What loaded models may take. bytes: of weights; None: it is not known, and any size is accepted. models: number
    of models."""

    bytes: int | None
    models: int


def victims_for(title: str, weights: Weights, loaded: Sequence[LoadedModel], room: Room) -> list[int]:
    """Which of the `loaded` models to evict for the model `title`: their places, least recently used first.

    Raises `DoesNotFit` if evicting all that may be evicted would not suffice.
    """
    idle = [place for place, model in enumerate(loaded) if model.evictable]
    idle.sort(key=lambda place: loaded[place].last_used_s)
    for count in range(len(idle) + 1):
        victims = idle[:count]
        kept = {model.weights.key: model.weights.bytes for at, model in enumerate(loaded) if at not in victims}
        wanted = 0 if weights.key in kept else weights.bytes
        free = None if room.bytes is None else max(0, room.bytes - sum(kept.values()))
        too_many = len(loaded) - count >= room.models
        if not too_many and (free is None or wanted <= free):
            return victims
    why = "max_loaded_models is reached" if too_many else f"{wanted} bytes wanted, {free} free"
    raise DoesNotFit(f"the model {title} does not fit: {why}, and no other model may be evicted now")

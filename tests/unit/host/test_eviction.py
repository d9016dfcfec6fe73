"""Which models make room for another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.errors import DoesNotFit
from gliner_bento.host.eviction import LoadedModel, Room, Weights, victims_for

_KEYS = st.sampled_from("abc")
_SIZES = {"a": 1, "b": 2, "c": 4}
_MODELS = st.builds(
    lambda key, used_s, evictable: LoadedModel(Weights(key, _SIZES[key]), used_s, evictable),
    _KEYS,
    st.integers(0, 9),
    st.booleans(),
)
_ROOMS = st.builds(Room, st.none() | st.integers(0, 12), st.integers(1, 5))


def _fits(key: str, kept: list[LoadedModel], room: Room) -> bool:
    held = {model.weights.key for model in kept}
    needed = sum(_SIZES[one] for one in held | {key})
    return len(kept) < room.models and (room.bytes is None or key in held or needed <= room.bytes)


@given(_KEYS, st.lists(_MODELS, max_size=5), _ROOMS)
def test_the_fewest_models_make_room_and_none_is_evicted_in_vain(key, loaded, room):
    idle = sorted(
        (place for place, model in enumerate(loaded) if model.evictable), key=lambda at: loaded[at].last_used_s
    )
    choices = [idle[:count] for count in range(len(idle) + 1)]
    enough = [gone for gone in choices if _fits(key, [loaded[at] for at in range(len(loaded)) if at not in gone], room)]
    if enough:
        assert victims_for("x", Weights(key, _SIZES[key]), loaded, room) == enough[0]
    else:
        with pytest.raises(DoesNotFit, match="the model x does not fit: "):
            victims_for("x", Weights(key, _SIZES[key]), loaded, room)


def test_weights_that_leave_with_their_last_model_are_counted_again():
    """Evicting the model whose weights are shared would leave too little room for them."""
    default, twin = LoadedModel(Weights("b", 9), 1, evictable=False), LoadedModel(Weights("a", 5), 0, evictable=True)
    with pytest.raises(DoesNotFit, match="5 bytes wanted, 1 free"):
        victims_for("x", Weights("a", 5), [default, twin], Room(bytes=10, models=2))

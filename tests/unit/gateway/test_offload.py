"""Short work is done at once, long work in a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gliner_bento.gateway.offload import offloaded


@pytest.mark.parametrize(("size", "is_here"), [(4_000, True), (4_001, False)])
def test_only_short_work_is_done_in_the_event_loop(size, is_here):
    async def thread():
        return await offloaded(size, threading.get_ident)

    assert (asyncio.run(thread()) == threading.get_ident()) is is_here


@pytest.mark.parametrize("size", [1, 100_000])
def test_an_error_of_the_work_is_raised(size):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(offloaded(size, lambda: 1 / 0))

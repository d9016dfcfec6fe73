"""Which replicas of an application run, as its request router in this process reports. No Ray: this module is shared by
the router, which Ray has pickled by value, and the fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_names: dict[str, Sequence[str]] = {}
_followers: dict[str, Callable[[Sequence[str]], object]] = {}


def report(application: str, names: Sequence[str]) -> None:
    """These replicas run now. Called in the thread of the router."""
    _names[application] = names
    if follower := _followers.get(application):
        follower(names)


def follow(application: str, follower: Callable[[Sequence[str]], object]) -> None:
    """Call `follower` with the names that run, now and at each change, in the thread of the router."""
    _followers[application] = follower
    if application in _names:
        follower(_names[application])

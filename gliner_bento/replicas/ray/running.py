"""Which replicas of a deployment run, as its request router in this process reports. No Ray: this module is shared by
the router, which Ray has pickled by value, and the fleet. A deployment is its `DeploymentID`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

_names: dict[Hashable, Sequence[str]] = {}
_followers: dict[Hashable, Callable[[Sequence[str]], object]] = {}


def report(deployment: Hashable, names: Sequence[str]) -> None:
    """These replicas run now. Called in the thread of the router."""
    _names[deployment] = names
    if follower := _followers.get(deployment):
        follower(names)


def follow(deployment: Hashable, follower: Callable[[Sequence[str]], object]) -> None:
    """Call `follower` with the names that run, now and at each change, in the thread of the router."""
    _followers[deployment] = follower
    if deployment in _names:
        follower(_names[deployment])

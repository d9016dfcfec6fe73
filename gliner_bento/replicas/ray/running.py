"""Which replicas of a deployment (a `DeploymentID`) run, as its request router in this process reports. The router and
the fleet share this module, which does not import Ray, because Ray pickles the router's own module by value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

_names: dict[Hashable, Sequence[str]] = {}
_followers: dict[Hashable, Callable[[Sequence[str]], object]] = {}


def report(deployment: Hashable, names: Sequence[str]) -> None:
    """Set the replicas that run now. Called in the thread of the router."""
    _names[deployment] = names
    if follower := _followers.get(deployment):
        follower(names)


def follow(deployment: Hashable, follower: Callable[[Sequence[str]], object]) -> None:
    """Call `follower` with the names of the running replicas, now and at each change, in the thread of the router."""
    _followers[deployment] = follower
    if deployment in _names:
        follower(_names[deployment])

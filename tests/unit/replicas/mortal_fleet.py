"""Fleets of mortal replicas, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from doubles.fake_engine import extract
from doubles.fake_time import now_s
from doubles.mortal_replica import MortalReplica
from views import view

from gliner_bento.replicas.base import Call, Outcome
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


def item(text: str = "Ada met Charles", **options) -> Item:
    return Item(text, {"name": "name"}, **options)


def call(request_id: str = "r", timeout_s: float = 30.0, **share) -> Call:
    return Call(request_id, now_s() + timeout_s, **share)


def fleet_of(*replicas: MortalReplica, **options) -> Fleet:
    names = {str(number): replica for number, replica in enumerate(replicas)}
    others = {name: options.pop(name) for name in ("on_other_model", "on_repeat") if name in options}
    return Fleet(names, replace(view(FleetOptions), **options), clock=now_s, **others)


async def started(*replicas: MortalReplica, **options) -> Fleet:
    """A fleet whose replicas have answered a probe."""
    fleet = fleet_of(*replicas, **options)
    await fleet.status()
    return fleet


def states(fleet: Fleet) -> list[str]:
    return [member.state for member in fleet._members.values()]


async def asked(fleet: Fleet, *texts: str, **options) -> Sequence[Outcome]:
    return await fleet.extract([item(text) for text in texts or ("Ada met Charles",)], call(**options))


def assert_right(outcomes: Sequence[Outcome], *texts: str) -> None:
    expected = [extract(item(text)).entities for text in texts or ("Ada met Charles",)]
    assert [list(outcome.entities) for outcome in outcomes if isinstance(outcome, Extraction)] == expected

"""Xinference's abort under its path, and the ids that it blocks."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from doubles.memory_replica import MemoryReplica

from gliner_bento.errors import Aborted
from gliner_bento.gateway.policy import blocked_ids
from gliner_bento.gateway.policy.blocked_ids import BlockedIds

PATH = "/v1/models/any/requests/mine/abort"
TEXT = {"text": "Ada met Charles", "labels": ["person"], "request_id": "mine"}


def test_a_running_request_is_aborted_and_its_id_refused(client, replica):
    replica.step = lambda: False

    async def scene():
        running = asyncio.create_task(client.post("/v1/extract", json=TEXT))
        while not replica.admitted:
            await asyncio.sleep(0)
        aborted = await client.post(PATH, json={"block_duration": 60})
        first = await running
        replica.step = lambda: True
        second = await client.post("/v1/extract", json=TEXT)
        other = await client.post("/v1/extract", json=TEXT | {"request_id": "other"})
        return aborted, first, second, other

    aborted, first, second, other = asyncio.run(scene())
    assert aborted.json() == {"msg": "DONE"}
    assert [first.status_code, second.status_code, other.status_code] == [499, 499, 200]
    assert "cancelled by another `abort_request` request" in second.json()["error"]["message"]


@pytest.mark.parametrize(("sent", "later"), [({}, 499), ({"json": {"block_duration": 0}}, 200)])
def test_an_unknown_id_is_not_found_and_may_be_blocked_for_30_s_by_default(client, sent, later):
    async def scene():
        return await client.post(PATH, **sent), await client.post("/v1/extract", json=TEXT)

    aborted, request = asyncio.run(scene())
    assert aborted.json() == {"msg": "NOT_FOUND"}
    assert request.status_code == later


@pytest.mark.parametrize("content", [b"{", b'{"block_duration": -1}', b'{"block_duration": "long"}', b"[]"])
def test_a_wrong_body_has_xinferences_error(client, content):
    response = asyncio.run(client.post(PATH, content=content, headers={"Content-Type": "application/json"}))
    assert response.status_code == 400
    assert list(response.json()) == ["detail"]


def test_the_model_of_an_abort_is_one_of_several(serving, replica):
    client = serving({"pii": replica, "general": MemoryReplica()})
    paths = [PATH.replace("/any/", f"/{model}/") for model in ("pii", "other")]
    answers = [asyncio.run(client.post(path)).json() for path in paths]
    assert answers == [{"msg": "NOT_FOUND"}, {"msg": "NO_OP"}]


def test_an_id_is_refused_for_its_time_only():
    now = [0.0]
    blocked = BlockedIds(lambda: now[0])
    blocked.block("a", 5)
    with pytest.raises(Aborted):
        blocked.check("a")
    blocked.check("b")
    now[0] = 5.0
    blocked.check("a")
    now[0] = 0.0
    blocked.check("a")


def test_the_oldest_ids_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(blocked_ids, "_MAX_IDS", 2)
    blocked = BlockedIds(lambda: 0.0)
    for name in "abc":
        blocked.block(name, 5)
    blocked.check("a")
    with pytest.raises(Aborted):
        blocked.check("c")


@pytest.mark.parametrize(("keys", "answer"), [(None, {"auth": False}), ("[]", {"auth": True})])
def test_its_client_learns_without_a_key_whether_to_send_one(serving, replica, options, keys, answer):
    client = serving(replica, dataclasses.replace(options, api_keys=keys))
    response = asyncio.run(client.get("/v1/cluster/auth"))
    assert (response.status_code, response.json()) == (200, answer)
    assert asyncio.run(client.get("/v1/models")).status_code == (401 if keys else 200)

"""The judgement of chaos about the guardrail: what counts as a value that has passed."""

from __future__ import annotations

import pytest
from on_a_socket import on_a_socket
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from waiting import wait_until

from reliability.guarded import guard_during

REDACTED = {"action": "GUARDRAIL_INTERVENED", "texts": ["[PERSON_1]"]}
ERROR = {"error": {"code": "storage_unavailable"}}


def judged(*later, **options):
    """The first call is redacted, the others get these answers in a cycle. Returns when each has been given."""
    given = []

    async def answer(_request):
        given.append(later[(len(given) - 1) % len(later)] if given else REDACTED)
        return JSONResponse(given[-1], status_code=507 if given[-1] is ERROR else 200)

    with on_a_socket(Starlette(routes=[Route("/beta/litellm_basic_guardrail_api", answer, methods=["POST"])])) as url:
        return guard_during(url, lambda: wait_until(lambda: len(given) > len(later)), **options)


def test_refusals_and_blocks_are_counted():
    said = judged(ERROR, {"action": "BLOCKED"}, REDACTED)
    assert said.startswith("no value passed: {'BLOCKED': ")
    assert "'storage_unavailable': " in said


@pytest.mark.parametrize("leak", [{"action": "NONE"}, {**REDACTED, "texts": ["to ada@example.com"]}])
def test_a_value_that_passes_is_seen(leak):
    with pytest.raises(AssertionError, match="a value passed"):
        judged(leak)


def test_that_no_call_is_answered_is_seen():
    assert "GUARDRAIL_INTERVENED" in judged(ERROR, *[REDACTED] * 4, redacts=True)
    with pytest.raises(AssertionError, match="no call of the guardrail was answered"):
        judged(ERROR, redacts=True)

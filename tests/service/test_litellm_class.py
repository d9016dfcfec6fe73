"""LiteLLM's own guardrail class, `GenericGuardrailAPI`, before a real server, with what its proxy passes to it.

LITELLM_PYTHON: see `test_litellm_proxy`.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from on_a_socket import on_a_socket
from test_litellm_proxy import CARD, TEXT, VALUES, environment, interpreter

from gliner_bento.asgi import create_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # litellm is imported

PROGRAM = Path(__file__).with_name("litellm_class_program.py")
PERSON, CITY, MAIL = VALUES
REDACTED = "[PERSON_1] lives in [CITY_1], mail [EMAIL_ADDRESS_1]"
ROWS = {"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}


class Guardrail:
    """The class, in a process of its own. `guard` ends our server."""

    def __init__(self, url: str, process: subprocess.Popen[str], guard: ExitStack) -> None:
        self._url, self._process, self.guard = url, process, guard
        self.ids: dict[str, str] = {}

    def new_call(self) -> None:
        """Of a language model: its request and its response have the same ids."""
        self.ids = {"litellm_call_id": uuid.uuid4().hex, "litellm_trace_id": uuid.uuid4().hex}

    def __call__(self, input_type: str, *, options: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
        """What the class returns or raises. A request has none of the values."""
        given = {"api_base": self._url, "forward_messages_as_sent": True, **(options or {})}
        call = {"inputs": inputs, "request_data": {"metadata": {}}, "input_type": input_type}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"options": given, "ids": self.ids, "call": call}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if input_type == "request":
            assert not [value for value in (*VALUES, CARD) if value in json.dumps(answer)]
        return answer


@pytest.fixture(scope="module")
def process() -> Iterator[tuple[str, subprocess.Popen[str], ExitStack]]:
    command = [interpreter(), str(PROGRAM)]
    with ExitStack() as guard:
        url = guard.enter_context(on_a_socket(create_app(), lifespan="on"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment(), **pipes) as process:
            yield url, process, guard
            process.stdin.close()


@pytest.fixture
def guardrail(process) -> Guardrail:
    made = Guardrail(*process)
    made.new_call()
    return made


def test_texts_are_redacted_and_restored(guardrail):
    sent = guardrail("request", texts=["Be brief.", TEXT], structured_messages=[*ROWS], model="gpt-5")
    assert sent == {"texts": ["Be brief.", REDACTED]}, "rows are unchanged: LiteLLM applies texts"
    assert guardrail("response", texts=["Dear **[Person 1]**,"])["texts"] == [f"Dear **{PERSON}**,"]
    nothing = guardrail("request", texts=["two plus two?"], structured_messages=[])
    assert nothing == {"texts": ["two plus two?"]}


def test_rows_parts_tool_calls_and_tools_are_redacted_and_stay_json(guardrail):
    arguments = json.dumps({"to": PERSON, "about": [{"mail": MAIL}], "card": int(CARD.replace(" ", "")), "count": 3})
    call = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": arguments}}
    rows = [
        {"role": "user", "content": [{"type": "text", "text": TEXT}, {"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": f"{PERSON} is a person"},
        {"role": "tool", "tool_call_id": "c1", "name": "send", "content": json.dumps({"sent_to": MAIL})},
    ]
    parameters = {"type": "object", "properties": {"to": {"type": "string", "description": f"Such as {PERSON}"}}}
    tools = [{"type": "function", "function": {"name": "send", "parameters": parameters}}]
    texts = [TEXT, "hello", rows[2]["content"]]
    sent = guardrail("request", texts=texts, structured_messages=rows, tool_calls=[call], tools=tools)
    user, assistant, tool = sent["structured_messages"]
    assert user["content"] == [{"type": "text", "text": REDACTED}, {"type": "text", "text": "hello"}]
    new = json.loads(assistant["tool_calls"][0]["function"]["arguments"])
    assert (new["to"], new["about"], new["count"]) == ("[PERSON_1]", [{"mail": "[EMAIL_ADDRESS_1]"}], 3)
    assert new["card"].startswith("[CREDIT_CARD_")
    assert (assistant["reasoning_content"], assistant["tool_calls"][0]["id"]) == ("[PERSON_1] is a person", "c1")
    assert json.loads(tool["content"]) == {"sent_to": "[EMAIL_ADDRESS_1]"}
    assert "[PERSON_1]" in json.dumps(sent["tools"])


def test_json_in_a_response_stays_json(guardrail):
    guardrail("request", texts=[TEXT])
    answer = guardrail("response", texts=['{"to": "[PERSON_1]", "mail": "[EMAIL_ADDRESS_1]"}'])
    assert json.loads(answer["texts"][0]) == {"to": PERSON, "mail": MAIL}


def test_tool_calls_of_the_model_are_ignored_by_the_class(guardrail):
    """Therefore the docs say that they keep placeholders."""
    guardrail("request", texts=[TEXT])
    call = {"id": "c", "type": "function", "function": {"name": "send", "arguments": '{"to": "[PERSON_1]"}'}}
    assert guardrail("response", texts=[], tool_calls=[call]) == {"texts": [], "stream_holdback_chars": []}


@pytest.mark.parametrize("placeholder", ["[PERSON_1]", "PERSON_1", "<PERSON_1>", "\\[PERSON\\_1\\]"])
def test_a_stream_shows_no_half_placeholder(guardrail, placeholder):
    """Each round has the text so far; LiteLLM emits what is new, but for the characters that are held back."""
    guardrail("request", texts=[TEXT])
    text, shown = f"Dear {placeholder}, hello", ""
    for end in range(1, len(text) + 1):
        answer = guardrail("response", texts=[text[:end]])
        (so_far,), (held,) = answer["texts"], answer.get("stream_holdback_chars", [0])
        shown += so_far[len(shown) : len(so_far) - held]
        assert f"Dear {PERSON}, hello".startswith(shown)
    assert so_far == f"Dear {PERSON}, hello"


@pytest.mark.parametrize("fallback", ["fail_closed", "fail_open"])
def test_blocked_kinds_images_and_errors_are_raised(guardrail, fallback):
    def raised(params, **inputs):
        options = {"additional_provider_specific_params": params, "unreachable_fallback": fallback}
        answer = guardrail("request", options=options, **inputs)
        return answer["raised"], answer["message"]

    kind, message = raised({"block": ["credit card number"]}, texts=[f"pay with {CARD}"])
    assert (kind, "credit card number" in message) == ("GuardrailRaisedException", True)
    kind, message = raised({"images": "block"}, texts=["hello"], images=["data:image/png;base64,iVBORw0KGgo="])
    assert (kind, "images" in message) == ("GuardrailRaisedException", True)
    kind, message = raised({"blok": ["credit card number"]}, texts=[f"pay with {CARD}"])
    assert (kind, "422" in message) == ("Exception", True)


def test_without_our_server_nothing_passes(guardrail):
    """The last test: it ends the server."""
    guardrail.guard.close()
    answer = guardrail("request", texts=[TEXT])
    assert (answer["raised"], "Generic Guardrail API failed" in answer["message"]) == ("Exception", True)

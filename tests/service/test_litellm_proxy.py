"""LiteLLM's proxy, from PyPI and unmodified, with the configuration of the docs, between a client and a double of a
language model that echoes, calls tools and streams. LITELLM_PYTHON names an interpreter that has litellm 1.110.2 and
what its extra `proxy` needs, but for litellm-proxy and litellm-proxy-extras, which are not on PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from doubles.language_model import LanguageModel
from on_a_socket import on_a_socket
from test_real_clients import page_block

from benchmark.server import free_port
from gliner_bento.asgi import create_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the proxy starts

KEY = "sk-" + "0123456789abcdef" * 3
VALUES = ("Bill Gates", "Redmond", "bill@gates.org")
TEXT = "{} lives in {}, mail {}".format(*VALUES)
USER = {"role": "user", "content": TEXT}
CARD = "4111 1111 1111 1111"
PROPERTIES = {"to": {"type": "string", "description": "Such as Bill Gates"}}
TOOL = {"type": "function", "function": {"name": "send", "parameters": {"type": "object", "properties": PROPERTIES}}}
PROGRAM = "from litellm.proxy.proxy_cli import run_server; run_server()"


class Proxy:
    """LiteLLM's proxy."""

    def __init__(self, client: httpx.Client, model: LanguageModel, guard: ExitStack) -> None:
        self._client, self.model, self.guard = client, model, guard

    def chat(self, *rows: dict[str, Any], status: int = 200, **more: Any) -> Any:
        """The message of the answer, or the error's text; of a stream, content and arguments. What the model received
        has none of the values."""
        self.model.received.clear()
        body = {"model": "double", "messages": rows, **more}
        answer = self._client.post("/v1/chat/completions", json=body)
        assert answer.status_code == status, answer.text
        assert len(self.model.received) == (status == 200)
        for value in (*VALUES, CARD):
            assert value not in json.dumps(self.model.received, ensure_ascii=False)
        if status != 200:
            return answer.json()["error"]["message"]
        return _joined(answer.text) if more.get("stream") else answer.json()["choices"][0]["message"]

    def respond(self, text: str) -> str:
        """The answer of `/v1/responses`."""
        self.model.received.clear()
        answer = self._client.post("/v1/responses", json={"model": "double", "input": text})
        assert answer.status_code == 200, answer.text
        assert not any(value in json.dumps(self.model.received) for value in VALUES)
        return answer.json()["output"][0]["content"][0]["text"]


def _joined(events: str) -> tuple[str, str]:
    content, arguments = "", ""
    for line in events.splitlines():
        for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or ():
                arguments += call["function"].get("arguments") or ""
    return content, arguments


def interpreter() -> str:
    """A Python that has litellm; without one, the test is skipped."""
    python = os.environ.get("LITELLM_PYTHON") or (sys.executable if find_spec("litellm") else "")
    if not python:
        pytest.skip("litellm is not installed; LITELLM_PYTHON can name an interpreter that has litellm[proxy]")
    return python


def environment() -> dict[str, str]:
    """The environment of a process with litellm: without our packages, and without a try to fetch prices."""
    path = os.environ.get("LITELLM_PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The proxy with the docs' configuration; `guard` ends our server."""
    python = interpreter()
    model, folder, port = LanguageModel(), tmp_path_factory.mktemp("litellm"), free_port()
    with on_a_socket(model.app) as model_url, ExitStack() as guard:
        url = guard.enter_context(on_a_socket(create_app(), lifespan="on"))
        (folder / "config.yaml").write_text(json.dumps(_configuration(url, model_url)))
        command = [python, "-c", PROGRAM, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
        with (folder / "log").open("w") as log:
            running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment())
            try:
                headers = {"Authorization": f"Bearer {KEY}"}
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=300) as client:
                    _wait(client, running, folder / "log")
                    yield Proxy(client, model, guard)
            finally:
                running.terminate()
                try:
                    running.wait(60)
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()


def _configuration(url: str, model_url: str) -> dict[str, Any]:
    configuration = yaml.safe_load(page_block("litellm", "yaml", "incremental_diff"))
    (guardrail,) = configuration["guardrails"]
    guardrail["litellm_params"]["api_base"] = url
    to_model = {"model": "openai/double", "api_base": f"{model_url}/v1", "api_key": "none"}
    return {
        **configuration,
        "model_list": [{"model_name": "double", "litellm_params": to_model}],
        "general_settings": {"master_key": KEY},
        "router_settings": {"disable_cooldowns": True, "num_retries": 0},
    }


def _wait(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + 300
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < end_s
        try:
            if client.get("/health/liveliness").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)


def test_answers_are_restored_and_the_model_sees_no_value(proxy):
    assert proxy.chat(USER)["content"] == f"Dear {TEXT}"
    parts = {"role": "user", "content": [{"type": "text", "text": TEXT}]}
    assert proxy.chat(parts)["content"] == f"Dear {TEXT}"
    assert proxy.chat(USER, stream=True) == (f"Dear {TEXT}", "")
    assert proxy.respond(TEXT) == f"Dear {TEXT}"


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_stay_json_and_their_results_are_redacted(proxy, stream):
    """LiteLLM gives the model's own tool calls to the client as the model has made them."""
    answer = proxy.chat(USER, tools=[TOOL], stream=stream)
    assert "Bill Gates" not in json.dumps(proxy.model.received[0]["tools"])
    arguments = answer[1] if stream else answer["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"to": "Dear [PERSON_1] lives in [CITY_1], mail [EMAIL_ADDRESS_1]"}
    call = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": json.dumps({"to": "Bill Gates"})}}
    rows = [
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Bill Gates is a person"},
        {"role": "tool", "tool_call_id": "c1", "content": f"sent to {TEXT}"},
    ]
    answer = proxy.chat(USER, *rows, tools=[TOOL], stream=stream)
    assert (answer[0] if stream else answer["content"]) == f"Dear sent to {TEXT}"
    (sent,) = proxy.model.received
    assert json.loads(sent["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"to": "[PERSON_1]"}


@pytest.mark.parametrize("stream", [False, True])
def test_blocked_kinds_and_images_are_not_sent(proxy, stream):
    reason = proxy.chat({"role": "user", "content": f"pay with {CARD}"}, status=400, stream=stream)
    assert reason.startswith("The request was not sent: ")
    assert CARD not in reason
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    rows = {"role": "user", "content": [{"type": "text", "text": "hello"}, image]}
    assert "images" in proxy.chat(rows, status=400, stream=stream)


def test_nothing_is_sent_without_our_server(proxy):
    """The last test: it ends the server."""
    proxy.guard.close()
    assert "Generic Guardrail API failed" in proxy.chat(USER, status=500)

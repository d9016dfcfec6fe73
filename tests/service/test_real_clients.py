"""The clients of other servers, from PyPI and unmodified, given this server's address. None is a dependency: see
docs/measurements/clients.json for the versions, and for what does not install."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml
from on_a_socket import on_a_socket
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gliner_bento.asgi import create_app
from gliner_bento.settings.configuration import PROJECT_ROOT

pytestmark = pytest.mark.slow

TEXT = "Bill Gates lives in Redmond."
LABELS = ["person", "organization", "date", "location"]
CONFIG = (
    '<View><Relations><Relation value="founded"/></Relations><Labels name="label" toName="text">'
    '<Label value="person"/><Label value="organization"/><Label value="date"/></Labels>'
    '<Text name="text" value="$text"/></View>'
)
TASKS = ["Bill Gates founded Microsoft in 1975.", "Nobody wrote anything.", "Larry Page founded Google in 1998."]


class Server:
    """The plain app under uvicorn, on a thread, and the requests that it got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._app = create_app()
        self.url = ""

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = b""

        async def recorded() -> Any:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            return message

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.calls.append((scope["method"], scope["path"], json.loads(body) if body else None))
                self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await send(message)

        await self._app(scope, recorded, answer)

    def extract(self, text: str, labels: Any, **options: Any) -> dict[str, Any]:
        body = {"text": text, "labels": labels, **options}
        return httpx.post(f"{self.url}/v1/extract", json=body, timeout=60).raise_for_status().json()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        with on_a_socket(self, lifespan="on") as self.url:
            yield self


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server().running() as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_recorded(server: Server) -> None:
    server.calls.clear()
    server.headers.clear()


def page_block(page: str, language: str, containing: str) -> str:
    text = (PROJECT_ROOT / "docs" / "migrate" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if containing in block]
    return block


def of_spans(entities: Any) -> list[tuple[int, int, str]]:
    return [(one["start"], one["end"], one["label"]) for one in entities]


def test_gliner_serves_client(server):
    from gliner.serve import GLiNERClient, get_client
    from gliner.serve.client import GLiNERClientError

    client = GLiNERClient(server.url)
    alone = [{"entities": server.extract(text, LABELS)["entities"]} for text in TASKS]
    assert client.predict(TASKS, LABELS) == alone
    assert asyncio.run(client.predict_async(TASKS, LABELS)) == alone
    assert client.predict(TASKS[0], {"who": "person"}, threshold=0.3)["entities"][0]["label"] == "who"
    related = get_client(server.url).predict(TASKS[0], LABELS, relations=["founded"])
    (founded,) = related["relations"]
    assert related["entities"][founded["head"]["entity_idx"]]["text"] == "Bill Gates"
    assert client.adapter_cache_status() == {"enabled": False, "base_adapter_id": "__base__"}
    assert client.is_adapter_cached("one") is False
    with pytest.raises(GLiNERClientError, match="404"):
        client.predict(TEXT, LABELS, adapter_id="nobody")
    with pytest.raises(GLiNERClientError, match="400"):
        client.predict(TEXT, LABELS, threshold=2)


def test_presidios_anonymizer_accepts_the_results(server):
    anonymizer = pytest.importorskip("presidio_anonymizer", reason="presidio-anonymizer is not installed")
    entities = pytest.importorskip("presidio_anonymizer.entities")
    body = {"text": TEXT, "language": "en", "entities": ["PERSON", "LOCATION"]}
    answer = httpx.post(f"{server.url}/analyze", json=body, timeout=60).json()
    found = [entities.RecognizerResult.from_json(one) for one in answer]
    operators = {"LOCATION": entities.OperatorConfig("mask", {"masking_char": "*", "chars_to_mask": 9, "from_end": 0})}
    theirs = anonymizer.AnonymizerEngine().anonymize(TEXT, found, operators)
    assert theirs.text == "<PERSON> lives in *******."
    ours = {"text": TEXT, "analyzer_results": answer}
    mask = {"type": "mask", "masking_char": "*", "chars_to_mask": 9, "from_end": False}
    anonymized = httpx.post(f"{server.url}/anonymize", json=ours | {"anonymizers": {"LOCATION": mask}}, timeout=60)
    answer = anonymized.json()
    fields = [{name: one[name] for name in theirs.items[0].to_dict()} for one in answer["items"]]
    assert (answer["text"], fields) == (theirs.text, [one.to_dict() for one in theirs.items])


def test_presidios_analyzer_with_the_recognizer_of_the_examples(server):
    pytest.importorskip("presidio_analyzer", reason="presidio-analyzer is not installed")
    ran = subprocess.run(
        [sys.executable, str(PROJECT_ROOT / "examples" / "presidio_recognizer.py")],
        env=os.environ | {"URL": server.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    found = {line.rpartition(" ")[0] for line in ran.stdout.splitlines()}
    assert found >= {"PERSON Bill Gates", "LOCATION Redmond", "CREDIT_CARD 4111 1111 1111 1111"}
    assert [call[:2] for call in server.calls] == [("POST", "/analyze")]
    shown = page_block("presidio", "text", "CREDIT_CARD")
    assert [line.rpartition(" ")[0] for line in shown.splitlines()] == [
        line.rpartition(" ")[0] for line in ran.stdout.splitlines()
    ]


def litellm_guardrail(url: str) -> Any:
    """LiteLLM's guardrail with the settings that the page shows."""
    hooks = pytest.importorskip("litellm.proxy.guardrails.guardrail_hooks.presidio", reason="litellm is not installed")
    page = page_block("presidio", "yaml", "guardrail_name").replace("http://localhost:3000", url)
    (guardrail,) = yaml.safe_load(page)["guardrails"]
    options = guardrail["litellm_params"]
    assert options.pop("guardrail") == "presidio"
    mode = options.pop("mode")
    name = guardrail["guardrail_name"]
    return hooks._OPTIONAL_PresidioPIIMasking(guardrail_name=name, event_hook=mode, default_on=True, **options)


async def guarded(guardrail: Any, *contents: str) -> list[str]:
    from litellm.caching.caching import DualCache
    from litellm.proxy._types import UserAPIKeyAuth

    data = {"messages": [{"role": "user", "content": content} for content in contents]}
    try:
        data = await guardrail.async_pre_call_hook(UserAPIKeyAuth(), DualCache(), data, "completion")
    finally:
        await guardrail._close_http_session()
    return [message["content"] for message in data["messages"]]


def test_litellms_presidio_guardrail(server):
    """Its calls, in order: each text that is not blank is analyzed, then anonymized with the results as received."""
    guardrail = litellm_guardrail(server.url)
    assert asyncio.run(guarded(guardrail, TEXT, " ")) == ["<PERSON> lives in <LOCATION>.", " "]
    (_, analyze, analyzed), (_, anonymize, anonymized) = server.calls
    assert (analyze, anonymize) == ("/analyze", "/anonymize")
    assert analyzed == {"text": TEXT, "language": "en", "entities": ["PERSON", "LOCATION", "EMAIL_ADDRESS"]}
    assert set(anonymized) == {"text", "analyzer_results"}
    assert [one["entity_type"] for one in anonymized["analyzer_results"]] == ["PERSON", "LOCATION"]
    assert {headers["accept"] for headers in server.headers if "accept" in headers} >= {"application/json"}


def test_litellms_presidio_guardrail_blocks(server):
    guardrail = litellm_guardrail(server.url)
    from litellm.exceptions import BlockedPiiEntityError

    with pytest.raises(BlockedPiiEntityError, match="EMAIL_ADDRESS"):
        asyncio.run(guarded(guardrail, "Write to jane.doe@example.org today."))
    assert [path for _, path, _ in server.calls] == ["/analyze"]


@pytest.mark.filterwarnings("ignore:Use 'nim_base_url':DeprecationWarning")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/nemo/v1/extract"])
def test_nemo_guardrails_rail(server, path):
    """The rail itself, with the configuration that the page shows: its client, and what it does with the answer."""
    rails = pytest.importorskip("nemoguardrails", reason="nemoguardrails is not installed")
    from nemoguardrails.library.gliner.actions import gliner_detect_pii, gliner_mask_pii

    page = page_block("nemo-guardrails", "yaml", "server_endpoint")
    page = page.replace("http://localhost:3000/v1/chat/completions", server.url + path)
    config = rails.RailsConfig.from_content(yaml_content=page)

    async def outcomes() -> tuple[Any, ...]:
        masked = await gliner_mask_pii(source="input", text=TEXT, config=config)
        clean = await gliner_detect_pii(source="input", text="Nobody.", config=config)
        blocked = await gliner_detect_pii(source="input", text=TEXT, config=config)
        return masked, clean, blocked

    masked, clean, blocked = asyncio.run(outcomes())
    assert masked.metadata["masked_text"] == "[NAME] lives in [CITY]."
    assert [one.decision.value for one in (masked, clean, blocked)] == ["transform", "allow", "block"]
    assert {called for _, called, _ in server.calls} == {path}


def test_nemo_guardrails_raises_on_a_refusal(server):
    request = pytest.importorskip("nemoguardrails.library.gliner.request", reason="nemoguardrails is not installed")
    call = request.gliner_request(
        TEXT, f"{server.url}/v1/chat/completions", [f"label {number}" for number in range(2000)]
    )
    with pytest.raises(ValueError, match=r'status code 4.*\s.*"detail"'):
        asyncio.run(call)


async def kept(request: Request) -> Response:
    """A language model for NeMo Anonymizer: keeps all entities that it is asked about, and finds no others."""
    asked = json.dumps((await request.json())["messages"])
    found = {"decisions": [{"id": one, "decision": "keep"} for one in set(re.findall(r"\b\w+_\d+_\d+\b", asked))]}
    content = json.dumps(found if "RawValidationDecisionsSchema" in asked else {"entities": []})
    message = {"role": "assistant", "content": f"```json\n{content}\n```"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return JSONResponse({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices,
                         "usage": usage})  # fmt: skip


def test_nemo_anonymizer(server, tmp_path):
    """Its command, with the providers that the page shows."""
    program = os.environ.get("NEMO_ANONYMIZER") or shutil.which("anonymizer")
    if not program:
        pytest.skip("nemo-anonymizer is not installed; NEMO_ANONYMIZER can name its command")
    providers, command = (page_block("nemo-anonymizer", kind, "providers") for kind in ("yaml", "bash"))
    (tmp_path / "letters.csv").write_text("text\nBill Gates lives in Redmond: bill@example.org.\nNobody is here.\n")
    with on_a_socket(Starlette(routes=[Route("/v1/chat/completions", kept, methods=["POST"])])) as model:
        addressed = providers.replace("http://localhost:3000", server.url).replace("https://openrouter.ai/api", model)
        (tmp_path / "providers.yaml").write_text(addressed)
        labels = [word for label in ("person", "city", "email") for word in ("--entity-labels", label)]
        ran = subprocess.run(
            [program, *shlex.split(command)[1:], *labels],
            cwd=tmp_path,
            env={**os.environ, "OPENROUTER_API_KEY": "x", "NEMO_TELEMETRY_ENABLED": "false", "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    with (tmp_path / "redacted.csv").open(encoding="utf-8", newline="") as file:
        redacted = [row["text_replaced"] for row in csv.DictReader(file)]
    assert redacted == ["[REDACTED_PERSON] lives in [REDACTED_CITY]: [REDACTED_EMAIL].", "Nobody is here."]
    assert {path for _, path, _ in server.calls} == {"/v1/chat/completions"}
    assert all(sorted(body["labels"]) == ["city", "email", "person"] for _, _, body in server.calls)


def test_xinferences_client(server):
    xinference = pytest.importorskip("xinference_client", reason="xinference-client is not installed")
    client = xinference.RESTfulClient(server.url)
    assert client.list_models()["demo"]["object"] == "model"
    assert client.abort_request("demo", "nobody", block_duration=0) == {"msg": "NOT_FOUND"}
    long = {"texts": [TASKS[0] * 100] * 40, "labels": LABELS, "request_id": "long"}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.post, f"{server.url}/v1/extract/batch", json=long, timeout=240)
        while client.abort_request("demo", "long", block_duration=0)["msg"] != "DONE":
            assert not asked.done(), "it ended before it could be aborted"
        errors = [one["error"] for one in asked.result().json()["results"]]
    assert "aborted" in [error and error["code"] for error in errors]
    assert client.abort_request("demo", "later", block_duration=600) == {"msg": "NOT_FOUND"}
    refused = httpx.post(f"{server.url}/v1/extract", json={"text": TEXT, "labels": LABELS, "request_id": "later"})
    assert refused.status_code == 499
    with pytest.raises(RuntimeError, match="block_duration"):
        client.abort_request("demo", "nobody", block_duration=-1)


def label_studio_python() -> str:
    """The interpreter that has Label Studio: LABEL_STUDIO_PYTHON, or this one."""
    named = os.environ.get("LABEL_STUDIO_PYTHON")
    if not (named or find_spec("label_studio")):
        pytest.skip("label-studio is not installed; LABEL_STUDIO_PYTHON can name an interpreter that has it")
    return named or sys.executable


def predictions(server: Server) -> list[dict[str, Any]]:
    body = {"tasks": [{"data": {"text": text}} for text in TASKS], "label_config": CONFIG}
    return httpx.post(f"{server.url}/predict", json=body, timeout=60).json()["results"]


@pytest.mark.timeout(600)  # Label Studio makes its database
def test_label_studio_itself(server, tmp_path):
    given = {"label_config": CONFIG, "texts": TASKS}
    program = Path(__file__).parent / "label_studio_program.py"
    ran = subprocess.run(
        [label_studio_python(), str(program), server.url, str(tmp_path)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=590,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    stored = json.loads(ran.stdout.splitlines()[-1])
    calls = list(server.calls)
    expected = predictions(server)
    assert (stored["state"], stored["error"]) == ("Connected", None)
    assert stored["model_version"] == expected[0]["model_version"]
    assert stored["versions"] == {"versions": [expected[0]["model_version"]]}
    assert stored["webhooks"] == [f"{server.url}/webhook"]
    assert stored["results"] == [one["result"] for one in expected]
    assert stored["scores"] == pytest.approx([one["score"] for one in expected])
    assert stored["interactive"]["data"]["result"] == expected[0]["result"]
    assert [path for _, path, _ in calls][:3] == ["/health", "/setup", "/health"]
    assert ("/predict", 3) in [(path, len(body["tasks"])) for _, path, body in calls if path == "/predict"]
    assert ("POST", "/webhook") in [call[:2] for call in calls]


def test_label_studios_sdk_accepts_the_predictions(server):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")
    checked = interface.LabelInterface(CONFIG)
    for prediction in predictions(server):
        prediction.pop("error")
        assert checked.validate_prediction(prediction, return_errors=True) == []


def vllm_factorys_processor() -> ModuleType:
    """The module of its GLiNER2 plugin that needs no vLLM; the plugin's package imports it."""
    try:
        file = distribution("vllm-factory").locate_file("plugins/deberta_gliner2/processor.py")
    except PackageNotFoundError:
        pytest.skip("vllm-factory is not installed")
    spec = spec_from_file_location("vllm_factorys_processor", str(file))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_vllm_factorys_formatter_gives_the_answer(server):
    """Its server needs vLLM; its code between the model and the answer is plain Python."""
    processor = vllm_factorys_processor()
    labels = {"person": "name of a person", "company": "organization"}
    schema = {"entities": labels, "relations": ["founded"]}
    found = server.extract(TASKS[0], labels, relations=["founded"], threshold=0.5, relation_threshold=0.5)
    spans: dict[str, list[Any]] = {label: [] for label in processor.normalize_gliner2_schema(schema)["entities"]}
    for one in found["entities"]:
        spans[one["label"]].append({**one, "confidence": one["score"]})
    instances = [
        {end: {**one[end], "confidence": one["score"]} for end in ("head", "tail")} for one in found["relations"]
    ]
    raw = {
        "entities": {"type": "entities", "entities": spans},
        "founded": {"type": "relations", "instances": instances},
    }
    assert found["relations"]
    for confidence in (False, True):
        for with_spans in (False, True):
            flags = {"include_confidence": confidence, "include_spans": with_spans}
            data = {"text": TASKS[0], "schema": schema, **flags}
            answer = httpx.post(f"{server.url}/pooling", json={"data": data}, timeout=60).json()
            assert answer["data"] == processor.format_results(raw, 0.5, confidence, with_spans)

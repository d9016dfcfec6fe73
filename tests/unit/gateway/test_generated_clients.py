"""Clients generated from the OpenAPI document work, and each operation can be a language model's tool."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import venv
from pathlib import Path

import httpx
import pytest
from gateway_options import OPTIONS
from jsonschema import Draft202012Validator

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.openapi import openapi_document
from gliner_bento.settings.configuration import PROJECT_ROOT

DOCUMENT = json.loads(openapi_document(GatewayApp(OPTIONS).endpoints))
OPERATIONS = {
    operation["operationId"]: operation for methods in DOCUMENT["paths"].values() for operation in methods.values()
}
CONFIG = PROJECT_ROOT / "examples" / "openapi-python-client.yaml"

TYPED = """
import type { components, paths } from "./gliner";

type Body = paths["/v1/extract"]["post"]["requestBody"]["content"]["application/json"];
export const named: Body = { text: "Ada met Charles", labels: ["person"] };
export const described: Body = { text: "Ada", labels: { person: "a human", place: { threshold: 0.4 } } };
// @ts-expect-error: a text is required
export const wrong: Body = { labels: ["person"] };
export const first = (answer: components["schemas"]["ExtractResponse"]): string | undefined => answer.entities[0]?.text;
export const code = (answer: components["schemas"]["ErrorBody"]): string => answer.error.code;
"""


def schemas_of(operation: dict) -> list[dict]:
    """Of an operation's parameters and body."""
    content = operation.get("requestBody", {}).get("content", {})
    return [*(one["schema"] for one in operation.get("parameters", [])), *(kind["schema"] for kind in content.values())]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_can_be_a_tool(name):
    """Its name is accepted by the APIs of language models, it is described, and its schemas resolve."""
    operation = OPERATIONS[name]
    assert re.fullmatch("[a-z][a-z0-9_]{2,55}", name)
    assert operation["summary"]
    assert len(operation["description"]) > len(operation["summary"]), "a sentence that says when to call it"
    assert all(one["description"] for one in operation.get("parameters", []))
    for schema in schemas_of(operation):
        Draft202012Validator.check_schema(schema)
        resolvable = {**DOCUMENT, **schema}
        for kind in (content for content in operation.get("requestBody", {}).get("content", {}).values()):
            if "example" in kind and kind["schema"] is schema:
                Draft202012Validator(resolvable).validate(kind["example"])


def test_a_body_that_does_not_fit_its_schema_is_found():
    """The test above can fail."""
    body = OPERATIONS["extract"]["requestBody"]["content"]["application/json"]["schema"]
    with pytest.raises(Exception, match="is not of type 'string'"):
        Draft202012Validator({**DOCUMENT, **body}).validate({"text": 7, "labels": ["a"]})


@pytest.mark.slow
def test_openapi_python_client_generates_a_client_without_warnings(app, tmp_path, monkeypatch):
    """In an environment of its own, because it excludes the server's version of typer."""
    (tmp_path / "docs.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = ["openapi-python-client==0.29.1", "ruff"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, timeout=300)
    monkeypatch.setenv("PATH", str(python.parent), prepend=":")
    command = [python.parent / "openapi-python-client", "generate", "--path", "docs.json", "--config", CONFIG]
    done = subprocess.run(
        [*command, "--fail-on-warning"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path / "gliner-bento-client")
    from gliner_bento_client import Client
    from gliner_bento_client.api.extract import extract
    from gliner_bento_client.models import ErrorBody, ExtractRequest, ExtractResponse

    async def calls():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as transport:
            client = Client(base_url="http://test").set_async_httpx_client(transport)
            body = ExtractRequest(text="Ada met Charles", labels=["person"], relations=["met"])
            found = await extract.asyncio(client=client, body=body)
            refused = await extract.asyncio(client=client, body=ExtractRequest(text="x" * 101, labels=["person"]))
            return found, refused

    found, refused = asyncio.run(calls())
    assert isinstance(found, ExtractResponse)
    assert [(one.text, one.label) for one in found.entities] == [("Ada", "person"), ("Charles", "person")]
    assert found.relations[0].tail.text == "Charles"
    assert isinstance(refused, ErrorBody)
    assert (refused.error.code, refused.error.param) == ("too_large", "text")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("npm"), reason="needs node and npm")
def test_openapi_typescript_gives_types_that_compile(tmp_path):
    (tmp_path / "docs.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    (tmp_path / "use.ts").write_text(TYPED, encoding="utf-8")
    packages = ["openapi-typescript@7.13.0", "typescript@5.9.3"]
    for command in (
        ["npm", "install", "--silent", "--no-audit", "--no-fund", *packages],
        ["npx", "openapi-typescript", "docs.json", "-o", "gliner.ts", "--default-non-nullable=false"],
        ["npx", "tsc", "--noEmit", "--strict", "use.ts"],
    ):
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "extract:" in Path(tmp_path / "gliner.ts").read_text(encoding="utf-8")

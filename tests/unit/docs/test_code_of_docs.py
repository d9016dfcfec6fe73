"""The code of all pages: it can be parsed, and the commands, routes, targets and names in it exist."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
import yaml
from code_blocks import Block, blocks

from gliner_bento.cli.flags import parse
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.endpoint import EndpointTable
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.tasks.requests import ExtractRequest

pytestmark = pytest.mark.long

BLOCKS = list(blocks())
SHELL = [block for block in BLOCKS if block.language in ("bash", "sh")]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PARSERS = {
    "json": json.loads,
    "yaml": lambda code: list(yaml.safe_load_all(code)),
    "toml": lambda code: pytest.importorskip("tomllib").loads(code),
    "python": lambda code: compile(code, "example", "exec"),
}
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT_ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
OTHER_ROUTES = {"/", "/docs", "/playground", "/docs.json"}


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """The arguments of each call of a program, with the place of the block."""
    for block in SHELL:
        code = block.code.replace("\\\n", "  ")
        start = rf"(?:^|[|;&(]) *(?:\w+=\S* )*(?:\S*bin/)?{program} "
        for call in re.finditer(rf"{start}[^|;&<>()\n]*", without_strings(code), re.MULTILINE):
            words = shlex.split(code[slice(*call.span())].strip("|;&( \n"))
            while not words[0].endswith(program):  # variables
                words.pop(0)
            yield str(block), words[1:]


def without_strings(code: str) -> str:
    """The code with other characters in the place of strings, comments, and redirected file descriptors."""
    parts = r"'[^']*'|\"[^\"]*\"|(?<!\S)#[^\n]*|(?<=\s)\d(?=[<>])"
    return re.sub(parts, lambda part: ("<" if part[0].startswith("#") else "_") * len(part[0]), code)


def test_every_block_has_a_language_that_is_parsed_or_is_plain():
    assert {block.language for block in BLOCKS} <= {*PARSERS, "bash", "sh", "text", ""}
    assert len(SHELL) > 50
    assert len(PYTHON) > 10


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in PARSERS], ids=str)
def test_data_and_programs_can_be_parsed(block: Block):
    PARSERS[block.language](block.code)


def test_shell_commands_can_be_parsed():
    for block in SHELL:
        parsed = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
        assert parsed.returncode == 0, f"{block}: {parsed.stderr}"


def test_the_command_line_knows_every_command_and_flag():
    calls = list(commands("gliner-bento"))
    assert len(calls) > 30
    for place, words in calls:
        try:
            parse([word for word in words if word != "..."])
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{place}: gliner-bento {shlex.join(words)}: {error}") from error


def test_the_graph_of_a_page_is_what_its_commands_print(tmp_path):
    pytest.importorskip("networkx")
    ((example, output),) = (pair for pair in pairwise(BLOCKS) if "cat > results.jsonl" in pair[0].code)
    run = f'gliner-bento() {{ {shlex.quote(sys.executable)} -m gliner_bento.cli "$@"; }}\n{example.code}'
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    printed = subprocess.run(
        ["bash", "-ec", run], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert printed.stdout == output.code


def test_every_make_target_exists():
    calls = list(commands("make"))
    assert len(calls) > 10
    assert [(place, words) for place, words in calls if words[0] not in MAKE_TARGETS] == []


def test_every_route_that_curl_calls_exists():
    table = EndpointTable(GatewayApp(Settings().view(GatewayOptions)).endpoints)
    calls = list(commands("curl"))
    assert len(calls) > 10
    for place, words in calls:
        urls = [word for word in words if re.match(r"(https?://)?(localhost|127\.0\.0\.1|server)[:/]", word)]
        assert urls, f"{place}: {words}"
        path = "/" + re.sub(r"^(https?://)?[^/]*/?", "", urls[0]).partition("?")[0]
        method = next((words[k + 1] for k, word in enumerate(words) if word == "-X"), None)
        body = any(word in words for word in ("-d", "--data", "--data-binary"))
        method = method or ("PUT" if "-T" in words else "POST" if body else "GET")
        endpoint = table.nearest(method, path)
        assert (endpoint and endpoint.method == method) or path in OTHER_ROUTES, f"{place}: {method} {path}"


def test_the_requests_that_pages_show_are_valid():
    own = [block for block in BLOCKS if block.language == "json" and not block.page.startswith("docs/migrate/")]
    shown = [(str(block), json.loads(block.code)) for block in own]
    requests = [(place, body) for place, body in shown if isinstance(body, dict) and {"text", "labels"} <= body.keys()]
    for place, words in commands("curl"):
        if any(re.fullmatch(r"(https?://)?[^/]+/v1/extract", word) for word in words):
            requests += [(place, json.loads(words[words.index("-d") + 1]))]
    assert len(requests) > 5
    for _, body in requests:
        ExtractRequest.model_validate(body)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_what_a_program_imports_from_this_package_exists(block: Block):
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("gliner_bento"):
            try:
                module = importlib.import_module(str(node.module))
            except ModuleNotFoundError as missing:
                if str(missing.name).startswith("gliner_bento"):
                    raise
                pytest.skip(f"needs {missing.name}")
            assert [one.name for one in node.names if not hasattr(module, one.name)] == []

"""The pages for users of other servers: their commands and programs run, and the answers that they show are real."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from gliner_bento import cli
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT

PAGES = sorted((PROJECT_ROOT / "docs" / "migrate").glob("*.md"))
DIFFERENT_EACH_TIME = {"request_id", "created", "created_at"}
SCORE = re.compile(r" \d\.\d+$", re.MULTILINE)
HEXADECIMAL = re.compile(r"[0-9a-f]{16,32}")
SERVE = ("gliner-bento serve", "python -m gliner_bento.serve")


@dataclass(frozen=True)
class Block:
    """A block of code of a page. shown: the block after it, if that is an answer or an output."""

    page: str
    number: int
    language: str
    code: str
    shown: str | None

    def __str__(self) -> str:
        return f"{self.page}-{self.number}-{self.language}"


def blocks_of(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    following = [*found[1:], ("", "")]
    return [
        Block(page.stem, number, language, code, then if after in ("json", "text") else None)
        for number, ((language, code), (after, then)) in enumerate(zip(found, following, strict=True))
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
CURLS = [block for block in BLOCKS if block.language == "bash" and block.code.startswith("curl ")]
EXAMPLES = [block for block in BLOCKS if block.language == "bash" and block.code.startswith("python examples/")]
OF_OTHERS = [block for block in BLOCKS if block.code.startswith("anonymizer ")]  # tests/service/test_real_clients.py
COMMANDS = [block for block in BLOCKS if block.language == "bash" and block not in [*CURLS, *EXAMPLES, *OF_OTHERS]]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
CONFIGURATIONS = [block for block in BLOCKS if block.language == "yaml"]


def addressed_to(server: str, code: str) -> str:
    """The code with the server under test in the place of localhost."""
    return re.sub(
        r"(http://)?localhost:\d+", lambda found: server if found[1] else server.removeprefix("http://"), code
    )


def output_of(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, cwd=PROJECT_ROOT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def assert_shown(answer: Any, shown: Any) -> None:
    """Equal, but for what differs each time; scores to 0.05."""
    if isinstance(shown, dict):
        assert list(answer) == list(shown)
        for name in shown.keys() - DIFFERENT_EACH_TIME:
            assert_shown(answer[name], shown[name])
    elif isinstance(shown, list):
        assert len(answer) == len(shown)
        for one, expected in zip(answer, shown, strict=True):
            assert_shown(one, expected)
    elif isinstance(shown, float):
        assert answer == pytest.approx(shown, abs=0.05)
    elif isinstance(shown, str) and shown.startswith("{"):
        assert_shown(json.loads(answer), json.loads(shown))
    else:
        assert without_ids(answer) == without_ids(shown)


def without_ids(value: Any) -> Any:
    """Ids of requests differ each time, fingerprints with the model."""
    return HEXADECIMAL.sub("", value) if isinstance(value, str) else value


def test_every_block_is_tested_and_every_page_has_an_answer():
    languages = {block.language for block in BLOCKS}
    assert languages <= {"bash", "python", "yaml", "json", "text"}
    answers = [block for block in BLOCKS if block.language in ("json", "text")]
    assert [block.code for block in answers] == [block.shown for block in BLOCKS if block.shown is not None]
    assert {block.page for block in CURLS if block.shown} == {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_first_line_says_what_to_change(page):
    title, _, first = page.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith("# From ")
    assert re.match(r"(\*\*)?(Change|Set|Start)\b", first)


OF_RECOGNIZERS = [block for block in blocks_of(PROJECT_ROOT / "docs" / "recognizers.md") if "/analyze" in block.code]


@pytest.mark.parametrize("block", [*CURLS, *OF_RECOGNIZERS], ids=str)
def test_a_request_has_the_answer_that_is_shown(server, block):
    answer = json.loads(output_of(["bash", "-c", addressed_to(server, block.code)]))
    assert "error" not in answer
    if block.shown:
        assert_shown(answer, json.loads(block.shown))


@pytest.mark.parametrize("block", [*PROGRAMS, *EXAMPLES], ids=str)
def test_a_program_has_the_output_that_is_shown(server, printed_by, block, monkeypatch):
    monkeypatch.setenv("URL", server)
    code = block.code
    if block in EXAMPLES:
        code = (PROJECT_ROOT / block.code.split()[1]).read_text(encoding="utf-8")
    for imported in imports_of(code):
        if not find_spec(imported):
            pytest.skip(f"{imported} is not installed")
    printed = printed_by(addressed_to(server, code))
    assert SCORE.sub("", printed) == SCORE.sub("", block.shown)


def imports_of(code: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(code)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.partition(".")[0] for name in plain | {n.module for n in nodes if isinstance(n, ast.ImportFrom)}}


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_that_serves_is_accepted(block, monkeypatch, tmp_path):
    """`pip install` is not run. A file that it names is one with a setting of each kind."""
    started = []
    properties = tmp_path / "serving.properties"
    properties.write_text("batch_size=8\nmax_batch_delay=10\noption.dtype=fp32\n")
    monkeypatch.setattr("os.execve", lambda *call: started.append(call))
    lines = [line for line in block.code.splitlines() if not line.startswith("pip install ")]
    for line in lines:
        command = next(one for one in SERVE if line.startswith(one))
        words = [
            re.sub(r"^/.*\.properties$", str(properties), word) for word in shlex.split(line.removeprefix(command))
        ]
        if "--redis-url" in words:
            pytest.importorskip("redis", reason="redis is not installed")
        assert cli.main(["serve", *words, "--port", "0"]) == 0
    assert len(started) == len(lines) > 0


@pytest.mark.filterwarnings("ignore:Use 'nim_base_url':DeprecationWarning")
@pytest.mark.parametrize("block", CONFIGURATIONS, ids=str)
def test_a_configuration_is_accepted(block, tmp_path):
    content = yaml.safe_load(block.code)
    if "guardrails" in content:
        pytest.importorskip("litellm", reason="litellm is not installed")
        from litellm.types.guardrails import Guardrail

        (guardrail,) = content["guardrails"]
        assert Guardrail(**guardrail)["litellm_params"]["guardrail"] in ("presidio", "generic_guardrail_api")
    elif "rails" in content:
        rails = pytest.importorskip("nemoguardrails", reason="nemoguardrails is not installed")
        config = rails.RailsConfig.from_content(yaml_content=block.code)
        for rail, fields in content["rails"]["config"].items():
            read = getattr(config.rails.config, rail)
            urls = {name: value for name, value in fields.items() if isinstance(value, str)}
            assert {name: getattr(read, name) for name in urls} == urls
    elif "providers" in content:  # tests/service/test_real_clients.py
        assert {one["provider_type"] for one in content["providers"]} == {"openai"}
    else:
        file = tmp_path / "configuration.yaml"
        file.write_text(block.code)
        settings = Settings.load(file=file)
        assert set(content["gliner"]) <= settings.model_fields_set

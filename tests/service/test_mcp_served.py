"""The example of docs/api.md, over a socket."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT


def test_the_documented_client_redacts_a_text(service):
    pytest.importorskip("mcp.server.lowlevel", reason="mcp is not installed")
    text = (PROJECT_ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    page = re.split("^## ", text.partition("\n## Tools for language models\n")[2], flags=re.MULTILINE)[0]
    ((example, printed),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)

    def run(url):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(example.replace("http://localhost:3000", url), {})
        return output.getvalue()

    assert service.on_a_socket(run) == printed

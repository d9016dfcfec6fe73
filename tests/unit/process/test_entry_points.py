"""The wiring of the programs that serve, as far as their source shows it: no cheap test runs all of them."""

from __future__ import annotations

import ast

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT


@pytest.mark.parametrize("file", ["service.py", "gliner_bento/asgi.py", "gliner_bento/ray/server.py"])
def test_a_server_limits_its_connections_and_ends_those_whose_requests_have_not_arrived(file):
    """Its limits are those of its app, and `run` gets them: it ends them when the server ends."""
    tree = ast.parse((PROJECT_ROOT / file).read_text(encoding="utf-8"))
    assigned = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    }
    made = {
        name: [ast.unparse(argument) for argument in call.args]
        for name, call in assigned.items()
        if ast.unparse(call.func) in ("limit_connections", "ProtocolLimits")
    }
    (app,) = (name for name, call in assigned.items() if ast.unparse(call.func) == "gateway_app")
    ((limits, arguments),) = made.items()
    assert arguments == [f"{app}.options", f"{app}.early"]
    runs = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "run"]
    assert [
        [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "connections"] for call in runs
    ] == [[limits]]

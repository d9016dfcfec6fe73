"""The measurements of docs/reliability.md in short forms. Their targets of time are not judged here."""

from __future__ import annotations

import json

from reliability.__main__ import main


def measured(folder, name: str) -> dict:
    data = json.loads((folder / f"{name}.json").read_text())
    return data | {"targets": {target["name"]: target["value"] for target in data["targets"]}}


def test_an_overloaded_server_accepts_or_refuses_every_request(tmp_path, capsys):
    main(["overload", "--factor", "5", "--seconds", "2", "--out", str(tmp_path)])
    data = measured(tmp_path, "overload")
    assert data["targets"]["neither accepted nor refused"] == 0
    assert data["targets"]["refusals without Retry-After"] == 0
    assert data["statuses"]["200"] > 0
    assert data["accepted"]["count"] + data["refused"]["count"] == data["requests"]
    assert capsys.readouterr().out == (tmp_path / "overload.md").read_text()

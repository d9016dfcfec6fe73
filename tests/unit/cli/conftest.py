"""What the tests of the command line share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def executed(monkeypatch):
    """What `serve` would become: program, arguments and environment, instead of this process."""
    calls = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    return calls
